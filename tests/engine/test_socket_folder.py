"""What killed processes leave in the folder for temporary files is removed by the next start, and nothing else is."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from octavo.engine.core_process import same_imports
from octavo.engine.socket_folder import LOCK, SocketFolder, remove_abandoned
from tests.server.conftest import wait_until

STARTER = """
import sys
from octavo.engine.core_process import CoreProcess
process = CoreProcess()
print(process.folder, process.pid, flush=True)
sys.stdin.read()
"""
"""Starts a core, and is killed before that has its order."""


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def killed_in_its_start(parent: Path) -> Path:
    """The folder that a process leaves which is killed (SIGKILL) while its core starts; the core ends by itself."""
    environment = {**same_imports(), "TMPDIR": str(parent)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=pipe, stdout=pipe, text=True, env=environment
    ) as dying:
        assert dying.stdout is not None
        folder, core = dying.stdout.readline().split()
        remove_abandoned(parent)
        assert Path(folder).is_dir(), "its maker lives"
        dying.send_signal(signal.SIGKILL)
        assert dying.wait() == -signal.SIGKILL
    wait_until(lambda: not runs(int(core)), "the core has ended")
    return Path(folder)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_next_start_removes_what_a_killed_process_has_left(parent: Path) -> None:
    left = killed_in_its_start(parent)
    assert left.is_dir()
    (left / "in0").touch()
    ours = SocketFolder()
    assert not left.exists()
    others = SocketFolder()
    assert ours.path.is_dir() and ours.path.stat().st_mode & 0o777 == 0o700
    ours.remove()
    ours.remove()
    assert [*parent.iterdir()] == [others.path]
    others.remove()


def test_nothing_else_is_touched(parent: Path) -> None:
    """Folders of other programs, of which nobody can say whether they are in use, and what a link points to."""
    (parent / "octavo-notes").mkdir()
    (parent / "octavo-file").touch()
    elsewhere = parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).touch()
    (parent / "octavo-link").symlink_to(elsewhere)
    odd = parent / "octavo-odd"
    odd.mkdir()
    (odd / LOCK).symlink_to(elsewhere / LOCK)
    before = sorted(parent.rglob("*"))
    remove_abandoned(parent)
    assert sorted(parent.rglob("*")) == before


def test_a_free_lock_is_what_counts(parent: Path) -> None:
    left = parent / "octavo-left"
    left.mkdir()
    (left / LOCK).touch()
    remove_abandoned(parent)
    assert not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder another user's")
def test_nobody_removes_what_another_user_has_left(parent: Path) -> None:
    left = parent / "octavo-left"
    left.mkdir()
    (left / LOCK).touch()
    os.chown(left, 12345, 12345)
    remove_abandoned(parent)
    assert left.is_dir()


def test_where_the_usual_folder_lies_too_deep_another_one_has_to_do(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(parent / ("x" * 90)))
    folder = SocketFolder()
    assert folder.path.parent == Path("/tmp")
    folder.remove()
