"""Limits that Linux control groups set: those of this process's group and of all groups above it."""

from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")

_UNLIMITED = 1 << 60
"""Version 1 writes "no limit" as a number about this large."""


@dataclass(frozen=True)
class MemoryBound:
    """The limit of one group."""

    limit_bytes: int
    used_bytes: int
    """What cannot be taken back: without file pages, which the system drops when a group gets full."""

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.used_bytes


def memory_bounds(root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> list[MemoryBound]:
    """Every memory limit that holds for this process; none where the system has no such files."""
    found = [_bound(folder, "memory.max", "memory.current", "") for folder in _folders(root, membership, "")]
    found += [_bound(folder, "memory.high", "memory.current", "") for folder in _folders(root, membership, "")]
    first = root / "memory"
    found += [
        _bound(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        for folder in _folders(first, membership, "memory")
    ]
    return [bound for bound in found if bound is not None]


def cpu_quota(root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Cores' worth of time that the tightest group has; None: as much as there is."""
    quotas = [_quota(read(folder / "cpu.max")) for folder in _folders(root, membership, "")]
    known = [quota for quota in quotas if quota is not None]
    return min(known, default=None)


def read(path: Path) -> str:
    """The file's text without surrounding space; empty where the system has no such file."""
    return path.read_text().strip() if path.is_file() else ""


def _folders(root: Path, membership: Path, controller: str) -> list[Path]:
    """From this process's group up to the root. In a container the group's path may be one that only the host sees:
    then the root is all there is, and it is the container's own.

    Args:
        controller: of version 1; empty: version 2.
    """
    for line in read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = root / path.strip("/")
            inside = [group, *group.parents]
            return [folder for folder in inside if folder == root or root in folder.parents]
    return [root]


def _bound(folder: Path, limit_file: str, used_file: str, prefix: str) -> MemoryBound | None:
    limit = read(folder / limit_file)
    if not limit.isdigit() or int(limit) > _UNLIMITED:
        return None
    used = read(folder / used_file)
    return MemoryBound(int(limit), max(0, int(used or 0) - _file_pages(folder, prefix)))


def _file_pages(folder: Path, prefix: str) -> int:
    entries = dict(line.split(" ", 1) for line in read(folder / "memory.stat").splitlines())
    return sum(int(entries.get(f"{prefix}{name}", 0)) for name in ("inactive_file", "active_file"))


def _quota(text: str) -> float | None:
    parts = text.split()
    return int(parts[0]) / int(parts[1]) if len(parts) == 2 and parts[0].isdigit() else None
