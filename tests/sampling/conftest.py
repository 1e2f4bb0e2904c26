"""Models and plug-ins of the oracle's tests."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from octavo import LLM
from octavo.execution.loader.tiny.write import write_tiny_model
from tests.equality.http import serving
from tests.sampling.plug_ins import MORE

COMMON = {"max_model_len": 160, "threads": 1, "max_num_seqs": 16, "block_size": 8}
"""Settings of every engine here."""
Install = Callable[..., None]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A two-layer llama with random weights, as a GGUF file."""
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf"))


def write_package(folder: Path, package: str, source: str, **processors: str) -> Path:
    """A package as pip leaves it: a module and its metadata, with entry points. The folder belongs on the path."""
    info = folder / package / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / package / f"{package}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in processors.items()]
    (info / "entry_points.txt").write_text("\n".join(["[octavo.logits_processors]", *lines]) + "\n")
    return folder / package


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package on the path of this process and its children: install(package, source, name="module:object")."""

    def install(package: str, source: str, **processors: str) -> None:
        monkeypatch.syspath_prepend(str(write_package(tmp_path, package, source, **processors)))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return install


@dataclass
class Both:
    """The same model, served and in this process."""

    http: httpx.Client
    llm: LLM


@pytest.fixture(scope="package")
def both(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """With a logits processor, `nudge`."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(write_package(folder, "served_processors", MORE, nudge="served_processors:Push")))
        with (
            serving(tiny_model, {**COMMON, "logits_processors": "nudge"}, folder) as url,
            httpx.Client(base_url=url, timeout=60) as http,
            LLM(tiny_model, **COMMON, logits_processors=["nudge"]) as llm,
        ):
            yield Both(http, llm)
