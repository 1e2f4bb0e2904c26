"""Whatever keeps a server from starting: one line that names cause and fix, an exit code, no process left behind."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from octavo.execution.loader.tiny import write_tiny_model
from tests.end_to_end.test_serve_process import RUN


@dataclass(frozen=True)
class Failure:
    """A start that cannot be."""

    says: tuple[str, ...]
    """Parts of the one line: what is wrong, and where."""
    damage: Callable[[Path], None] = lambda _: None
    """What is done to a folder with a sound safetensors model."""
    flags: tuple[str, ...] = ()
    model: str = "model"
    """Relative to the folder."""
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 2
    """1 where the machine is at fault, 2 where it is what was asked."""


def changed_config(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return change


def removed(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        files = list(folder.glob(name))
        assert files, name
        for file in files:
            file.unlink()

    return remove


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def long_header(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 2**62) + file.read_bytes()[8:])


def no_json(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": ')


def foreign_gguf(folder: Path) -> None:
    (folder / "x.gguf").write_bytes(b"GGUF" + b"\xff" * 60)


FAILURES = {
    "no such path": Failure(("./nowhere/at/all",), model="./nowhere/at/all"),
    "weights cut off": Failure(("model.safetensors", "truncated"), cut_weights),
    "a header of an exabyte": Failure(("model.safetensors", "header"), long_header),
    "an unknown architecture": Failure(
        ("MambaForCausalLM", "llama"), changed_config(architectures=["MambaForCausalLM"], model_type="mamba")
    ),
    "a config that contradicts the weights": Failure(("shape",), changed_config(intermediate_size=96)),
    "no config": Failure(("config.json",), removed("config.json")),
    "no words": Failure(("tokenizer",), removed("tokenizer*")),
    "broken words": Failure(("tokenizer.json",), no_json),
    "a foreign GGUF": Failure(("x.gguf",), foreign_gguf, model="model/x.gguf"),
    "no room for one request": Failure(
        ("one request of 700 tokens takes 44 blocks",), flags=("--num-kv-blocks", "3", "--max-model-len", "700")
    ),
    "too little memory": Failure(
        ("one request of 2 tokens takes 1 blocks", "raise --kv-cache-memory-bytes"),
        flags=("--kv-cache-memory-bytes", "1KiB"),
    ),
    "a context that is too long": Failure(("--max-model-len=9999999",), flags=("--max-model-len", "9999999")),
    "a device that is no server": Failure(("--executor",), flags=("--executor", "cuda")),
    "a policy that is none": Failure(("lottery",), flags=("--scheduling-policy", "lottery")),
    "a path for KV that is a file": Failure(
        ("--kv-disk-path",), flags=("--kv-disk-path", "model/config.json", "--kv-disk-size", "1MiB")
    ),
    "a cache that cannot be written": Failure(
        ("/proc/no/cache", "OCTAVO_CACHE"),
        model="smollm2-135m",
        environment={"OCTAVO_CACHE": "/proc/no/cache"},
        code=1,
    ),
}
QUICK = {"weights cut off", "an unknown architecture", "no words", "no room for one request"}
SLOW = {"a foreign GGUF", "a path for KV that is a file", "a cache that cannot be written", "too little memory"}
"""The others fail in the same places."""


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """When a failure is tried."""
    return [] if name in QUICK else [pytest.mark.slow] if name in SLOW else [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a model that starts."""
    folder = tmp_path_factory.mktemp("sound")
    write_tiny_model(folder / "model", format="safetensors")
    yield folder


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in FAILURES])
def test_what_cannot_start_says_why_and_leaves_nothing(name: str, sound: Path, tmp_path: Path) -> None:
    failure = FAILURES[name]
    model = tmp_path / "model"
    model.mkdir()
    for file in (sound / "model").iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    failure.damage(model)
    command = [sys.executable, "-P", "-c", RUN, "serve", failure.model, "--port", "0", *failure.flags]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mark = f"of-{os.getpid()}-{tmp_path.name}"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary), "STARTED_BY": mark}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path, env=here | failure.environment
    )
    assert (done.returncode, done.stdout) == (failure.code, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("octavo: ") and len(line) < 600
    for part in failure.says:
        assert part in line
    assert list(temporary.iterdir()) == []
    assert [process for process in psutil.process_iter() if _has(process, mark)] == []


def _has(process: psutil.Process, mark: str) -> bool:
    """Whether it is a child, however distant, of the start with this mark."""
    try:
        return process.environ().get("STARTED_BY") == mark
    except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
