"""Limits of control groups, wherever in the tree they are set."""

from pathlib import Path

import psutil
import pytest

from octavo.platform.cgroup import cpu_quota, memory_bounds
from octavo.platform.cpu import describe_machine

MIB = 1 << 20


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_dot_", ".")).write_text(text + "\n")
    return folder


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    path = tmp_path / "cgroup"
    path.write_text("0::/system.slice/octavo.service\n")
    return path


def test_limits_of_the_groups_above_hold_too(tmp_path: Path, membership: Path) -> None:
    root = group(tmp_path / "fs")
    group(root / "system.slice", memory_dot_max=str(100 * MIB), memory_dot_current=str(90 * MIB))
    unit = group(root / "system.slice/octavo.service", memory_dot_max=str(64 * MIB), memory_dot_current=str(10 * MIB))
    assert [(bound.limit_bytes, bound.free_bytes) for bound in memory_bounds(root, membership)] == [
        (64 * MIB, 54 * MIB),
        (100 * MIB, 10 * MIB),
    ]
    machine = describe_machine(root, membership)
    assert (machine.total_memory_bytes, machine.available_memory_bytes) == (64 * MIB, 10 * MIB)
    (unit / "memory.high").write_text(f"{32 * MIB}\n")
    assert describe_machine(root, membership).total_memory_bytes == 32 * MIB


def test_file_pages_are_not_used_up(tmp_path: Path, membership: Path) -> None:
    """A model that has been read or copied lies in the page cache, and the group is charged for it."""
    root = tmp_path / "fs"
    group(
        root / "system.slice/octavo.service",
        memory_dot_max=str(100 * MIB),
        memory_dot_current=str(90 * MIB),
        memory_dot_stat=f"anon {10 * MIB}\ninactive_file {50 * MIB}\nactive_file {30 * MIB}",
    )
    assert [bound.free_bytes for bound in memory_bounds(root, membership)] == [90 * MIB]


def test_a_path_that_only_the_host_sees(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/../../kubepods/pod1\n")
    root = group(tmp_path / "fs", memory_dot_max=str(64 * MIB))
    assert [bound.limit_bytes for bound in memory_bounds(root, membership)] == [64 * MIB]


def test_version_1(tmp_path: Path, membership: Path) -> None:
    membership.write_text("5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n")
    unlimited = str(0x7FFFFFFFFFFFF000)
    root = tmp_path / "fs"
    group(root / "memory", memory_dot_limit_in_bytes=unlimited)
    group(
        root / "memory/a",
        memory_dot_limit_in_bytes=str(80 * MIB),
        memory_dot_usage_in_bytes=str(60 * MIB),
        memory_dot_stat=f"total_inactive_file {20 * MIB}",
    )
    assert [(bound.limit_bytes, bound.free_bytes) for bound in memory_bounds(root, membership)] == [
        (80 * MIB, 40 * MIB)
    ]


def test_no_files_no_limits(tmp_path: Path, membership: Path) -> None:
    assert memory_bounds(tmp_path / "nowhere", membership) == []
    assert memory_bounds(tmp_path / "nowhere", tmp_path / "nothing") == []
    assert cpu_quota(tmp_path / "nowhere", membership) is None
    assert describe_machine(tmp_path / "nowhere", membership).total_memory_bytes == psutil.virtual_memory().total


def test_the_tightest_quota_counts(tmp_path: Path, membership: Path) -> None:
    root = group(tmp_path / "fs", cpu_dot_max="300000 100000")
    group(root / "system.slice", cpu_dot_max="150000 100000")
    group(root / "system.slice/octavo.service", cpu_dot_max="max 100000")
    assert cpu_quota(root, membership) == 1.5
