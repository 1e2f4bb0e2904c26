"""The README's snippets do what they say, as they stand there; only the port is another."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.test_serve_process import serve
from tests.real_models import model_path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def snippets(language: str, needle: str) -> str:
    """The one code block of a language that holds a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [block for block in blocks if needle in block]
    return found


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Of `octavo serve` with the default model."""
    model_path("smollm2-135m")
    with serve("smollm2-135m") as process:
        yield process.url.rsplit(":", 1)[1]


def test_curl(port: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    script = snippets("bash", "curl ").replace("8000", port).replace("curl ", "curl --silent --show-error ")
    assert "Paris" in run(["bash", "-c", script])


def test_the_openai_client(port: str) -> None:
    assert "Paris" in run([sys.executable, "-c", snippets("python", "OpenAI(").replace("8000", port)])


def test_the_python_api() -> None:
    model_path("smollm2-135m")
    assert "red" in run([sys.executable, "-c", snippets("python", "LLM(")]).lower()
