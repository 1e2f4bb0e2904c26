"""The CPU platform: cores and memory that this process may really use, container limits respected."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from octavo.platform.cgroup import CGROUP_ROOT, MEMBERSHIP, cpu_quota, memory_bounds, read


@dataclass(frozen=True)
class CpuMachine:
    """A snapshot of the machine as this process sees it."""

    model_name: str
    usable_cores: int
    """Cores that affinity and container limits leave to this process, at least 1."""
    total_memory_bytes: int
    available_memory_bytes: int
    """What can be taken now without swapping, under the container's limit."""


def describe_machine(cgroup_root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> CpuMachine:
    """Reads the machine.

    Args:
        cgroup_root: where the control group files lie; absent files mean no limit.
        membership: the file that says in which groups this process is.
    """
    memory, bounds = psutil.virtual_memory(), memory_bounds(cgroup_root, membership)
    return CpuMachine(
        model_name=_model_name(),
        usable_cores=_usable_cores(cgroup_root, membership),
        total_memory_bytes=min([memory.total, *(bound.limit_bytes for bound in bounds)]),
        available_memory_bytes=min([memory.available, *(bound.free_bytes for bound in bounds)]),
    )


def resident_bytes() -> int:
    """Memory that this process holds now, pages of libraries included."""
    return int(psutil.Process().memory_info().rss)


def _usable_cores(cgroup_root: Path, membership: Path) -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(cgroup_root, membership)
    return max(1, allowed if quota is None else min(allowed, int(quota)))


def _model_name() -> str:
    for line in read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
