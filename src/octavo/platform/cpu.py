"""The CPU platform: cores and memory that this process may really use, container limits respected."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class CpuMachine:
    """A snapshot of the machine as this process sees it."""

    model_name: str
    usable_cores: int
    """Cores that affinity and container limits leave to this process, at least 1."""
    total_memory_bytes: int
    available_memory_bytes: int
    """What can be taken now without swapping, under the container's limit."""


def describe_machine(cgroup_root: Path = CGROUP_ROOT) -> CpuMachine:
    """Reads the machine.

    Args:
        cgroup_root: where the (version 2) control group files lie; absent files mean no limit.
    """
    memory = psutil.virtual_memory()
    limit = _memory_limit(cgroup_root)
    return CpuMachine(
        model_name=_model_name(),
        usable_cores=_usable_cores(cgroup_root),
        total_memory_bytes=min(memory.total, limit) if limit else memory.total,
        available_memory_bytes=min(memory.available, limit - _memory_used(cgroup_root)) if limit else memory.available,
    )


def _usable_cores(cgroup_root: Path) -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read(cgroup_root / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        return max(1, min(allowed, int(quota[0]) // int(quota[1])))
    return max(1, allowed)


def _memory_limit(cgroup_root: Path) -> int | None:
    limit = _read(cgroup_root / "memory.max")
    return int(limit) if limit.isdigit() else None


def _memory_used(cgroup_root: Path) -> int:
    used = _read(cgroup_root / "memory.current")
    return int(used) if used.isdigit() else 0


def _model_name() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _read(path: Path) -> str:
    """The file's text without surrounding space; empty where the system has no such file."""
    return path.read_text().strip() if path.is_file() else ""
