"""Processes that die, share a path, or fill it: real ones."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from octavo.execution.kv_store import disk_store
from octavo.kv.transfer import TransferState
from tests.execution.kv_store.rig import Device, disk_rig, folder, layout, record
from tests.execution.kv_store.test_disk import warnings

ROOT = Path(__file__).parents[3]


@contextmanager
def child(path: Path, size_bytes: int, num_blocks: int, *more: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.execution.kv_store.child"]
    command += [str(path), *map(str, (size_bytes, num_blocks, *more))]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    yield from (line.strip() for line in process.stdout)


def bytes_under(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("after", [1, 7, 40, 150])
def test_a_kill_loses_nothing_but_the_block_being_stored(
    after: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with child(tmp_path, 10 << 20, 100_000) as process:
        for line in lines(process):
            if line == str(after):
                break
        os.kill(process.pid, signal.SIGKILL)
        stored = [int(line) for line in lines(process) if line.isdigit()]
        assert process.wait(20) == -signal.SIGKILL
    last = max([after, *stored])
    with disk_rig(tmp_path, size_bytes=10 << 20) as rig:
        found = rig.store.inventory()
        assert found[: last + 1] == [record(number) for number in range(last + 1)]
        assert len(found) <= last + 3  # what was stored but not printed any more
        for number in range(last + 1):
            assert rig.loaded([number]).state is TransferState.DONE
            assert rig.right([number]) == [True]
    assert not warnings(caplog)


def test_a_second_process_gets_what_the_first_has_not_claimed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = Device(layout())
    with child(tmp_path, 1 << 20, 5) as process:
        assert list(iter(lines(process).__next__, "done")) == ["found 0", "0", "1", "2", "3", "4"]
        assert disk_store(device, device.layout, tmp_path, 1 << 20, "model", lambda: None) is None
        (warning,) = warnings(caplog)
        assert "other processes" in warning
        assert "1048576 bytes" in warning
        caplog.clear()
        with disk_rig(tmp_path, size_bytes=(1 << 20) + 50_000) as rig:
            assert rig.store.capacity_bytes <= 50_000
            assert rig.store.inventory() == []  # the first one's are not touched
            assert rig.stored(range(10, 20)).state is TransferState.DONE
        (warning,) = warnings(caplog)
        assert "none are shared" in warning
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(20) == 0
    with disk_rig(tmp_path) as rig:
        assert rig.store.inventory() == [record(number) for number in range(5)]
        assert len(list(tmp_path.glob("kv1-*"))) == 2


def test_a_killed_owner_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    with child(tmp_path, 1 << 20, 3) as process:
        assert "done" in lines(process)
        process.kill()
        process.wait(20)
    with disk_rig(tmp_path) as rig:
        assert len(rig.store.inventory()) == 3
    folder(tmp_path)  # there is but one


def test_a_program_that_forgets_to_close_its_store_ends(tmp_path: Path) -> None:
    with child(tmp_path, 1 << 20, 3) as process:
        assert "done" in lines(process)
        assert process.stdin is not None
        process.stdin.write("leave\n")
        process.stdin.flush()
        assert process.wait(20) == 0
    with disk_rig(tmp_path) as rig:
        assert len(rig.store.inventory()) == 3


def test_a_real_limit_of_the_system_is_no_tier(tmp_path: Path) -> None:
    """Files that must not grow fail in the middle of a block, as a full disk does."""
    with child(tmp_path, 1 << 20, 30, 10_000) as process:
        said = list(iter(lines(process).__next__, "done"))
    stored = [int(line) for line in said if line.isdigit()]
    problems = [line for line in said if not line.isdigit() and not line.startswith("found")]
    assert 0 < len(stored) < 30
    assert stored == list(range(len(stored)))
    assert len(problems) == 30 - len(stored)
    assert "File too large" in problems[0]
    with disk_rig(tmp_path) as rig:
        assert rig.store.inventory() == [record(number) for number in stored]
        rig.loaded(stored)
        assert all(rig.right(stored))
