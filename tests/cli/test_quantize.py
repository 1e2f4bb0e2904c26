"""`octavo quantize` in this process."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.cli.main import main
from octavo.conversion import plan
from octavo.execution.loader.tiny import TinyModel, write_tiny_model

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def octavo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command in a folder of its own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["octavo", "quantize", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return run


def test_a_name_for_the_result_is_made_and_told(octavo: Run, tiny_model: str) -> None:
    code, out, _ = octavo(tiny_model, "--to", "Q8_0")
    assert code == 0
    assert out.startswith("tiny-q8_0.gguf: 0.")
    assert "of the source); tensors: 5 F32, 15 Q8_0" in out
    assert Path("tiny-q8_0.gguf").is_file()


def test_tables_have_types_of_their_own(octavo: Run, tiny_model: str) -> None:
    _, out, _ = octavo(tiny_model, "--to", "q4_0", "--output-type", "f16", "-o", "own.gguf", "--threads", "1")
    assert "tensors: 1 F16, 5 F32, 14 Q4_0" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--to", "q9"), "--to='q9': must be one of q8_0, q6_k,"),
        (("--to", "f32"), "--to='f32': would change nothing"),
        (("--to", "q4_0", "--format", "safetensors", "-o", "x"), "--format='safetensors': is not made of gguf files"),
        (("--to", "q4_0", "-o", "absent/x.gguf"), "--output='absent/x.gguf': there is no folder absent; make it first"),
        ((), "Missing option '--to'"),
    ],
)
def test_errors_name_flag_value_and_fix(octavo: Run, tiny_model: str, arguments: tuple[str, ...], told: str) -> None:
    code, out, err = octavo(tiny_model, *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_split_model_gives_its_name_without_numbers(octavo: Run) -> None:
    part = write_tiny_model(Path("big.gguf"), TinyModel(), shards=2)
    code, out, _ = octavo(str(part), "--to", "q8_0")
    assert (code, out.split(":")[0]) == (0, "big-q8_0.gguf")


def test_help_says_what_becomes_a_folder(octavo: Run) -> None:
    code, out, _ = octavo("--help")
    assert code == 0
    assert "a safetensors folder only of a Hugging Face folder" in " ".join(out.replace("│", " ").split())


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def stopped(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [(full, 2, "--output='x.gguf': cannot be written ([Errno 28] No space"), (stopped, 143, "")],
)
def test_nothing_is_left_behind(
    octavo: Run, tiny_model: str, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None], code: int, told: str
) -> None:
    def write(path: Path, *rest: object) -> None:
        path.write_bytes(b"half")
        fault()

    monkeypatch.setattr(plan.gguf_writer, "write_gguf", write)
    before = signal.getsignal(signal.SIGTERM)
    ended, _, err = octavo(tiny_model, "--to", "q8_0", "-o", "x.gguf")
    assert ended == code
    assert told in err
    assert not list(Path().iterdir())
    assert signal.getsignal(signal.SIGTERM) is before
