"""Who owns which folder under the path of a disk tier, and how many bytes all of them take together.

    PATH/lock                           held while somebody looks round or changes who owns what
    PATH/kv1-<fingerprint>-<number>/    blocks of one model and format, for one process at a time
        lock                            held by the owner while it lives; names the bytes it may take
        entries, blocks

Locks are those of the system (flock): they end with their process, however it ends. The size that the user gave is for
the whole path: an owner may take what live ones have left, and folders that nobody owns (other models, earlier formats)
stay until their room is needed, the longest unused first to go.
"""

import fcntl
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from octavo.execution.kv_store.entry import VERSION
from octavo.execution.kv_store.medium import NoRoomError

log = logging.getLogger(__name__)

ENTRIES, BLOCKS, _LOCK = "entries", "blocks", "lock"
_NAME = re.compile(r"kv\d+-[0-9a-f]{32}-\d+")
_PATIENCE_S = 5.0
"""How long another process may look round."""


@dataclass(frozen=True)
class _Seen:
    """A folder under the path."""

    path: Path
    num_bytes: int
    """Of its files; of one that is owned, what the owner may take."""
    used_s: float
    """When it was last opened or closed, by the system's clock."""
    owned: bool


class OwnedFolder:
    """A folder that belongs to this process until `release`."""

    def __init__(self, path: Path, lock: int, capacity_bytes: int) -> None:
        self.path = path
        self.capacity_bytes = capacity_bytes
        """Most bytes that its files and those of unowned folders may take."""
        self._lock = lock
        self._idle_bytes = sum(seen.num_bytes for seen in _survey(path.parent) if not seen.owned)

    def make_room(self, own_bytes: int) -> None:
        """Deletes unowned folders until `own_bytes` fit beside them.

        Raises:
            NoRoomError: they do not.
            OSError: the path is gone, or cannot be written.
        """
        if own_bytes + self._idle_bytes <= self.capacity_bytes:
            return
        with _looking_round(self.path.parent):
            idle = sorted((seen for seen in _survey(self.path.parent) if not seen.owned), key=lambda seen: seen.used_s)
            self._idle_bytes = sum(seen.num_bytes for seen in idle)
            for seen in idle:
                if own_bytes + self._idle_bytes <= self.capacity_bytes:
                    break
                _delete(seen.path)
                self._idle_bytes -= seen.num_bytes
        if own_bytes + self._idle_bytes > self.capacity_bytes:
            raise NoRoomError(f"{self.path.parent} has no room for more KV blocks")

    def release(self) -> None:
        """Ends the ownership; the files stay."""
        with suppress(OSError):
            os.utime(self._lock)
        os.close(self._lock)


def claim(path: Path, fingerprint: bytes, size_bytes: int, least_bytes: int) -> OwnedFolder:
    """Takes a folder for blocks of a fingerprint: the one used last that nobody owns, or a new one.

    Args:
        path: a folder.
        size_bytes: for all folders under the path.
        least_bytes: with less a folder is of no use.

    Raises:
        NoRoomError: other processes have claimed the size.
        OSError: the path cannot be used.
    """
    with _looking_round(path):
        seen = _survey(path)
        claimed = sum(folder.num_bytes for folder in seen if folder.owned)
        capacity = size_bytes - claimed
        if capacity < least_bytes:
            others = f"; other processes that use {path} have claimed {claimed} bytes" if claimed else ""
            raise NoRoomError(
                f"a size of {size_bytes} bytes{others}: a block takes {least_bytes} bytes. "
                "Give the processes a path each, or more room"
            )
        return _take(path, f"kv{VERSION}-{fingerprint.hex()[:32]}", seen, capacity)


def _take(path: Path, name: str, seen: list[_Seen], capacity: int) -> OwnedFolder:
    mine = [folder for folder in seen if folder.path.name.rpartition("-")[0] == name]
    idle = sorted((folder for folder in mine if not folder.owned), key=lambda folder: folder.used_s)
    if mine and not idle:
        log.warning("another process keeps KV blocks of this model in %s: none are shared with it", path)
    folder = idle[-1].path if idle else _make(path, name)
    folder.chmod(0o700)
    lock = _try_lock(folder)
    if lock is None:
        raise BlockingIOError(f"{folder} was taken meanwhile")
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(capacity).encode(), 0)
    return OwnedFolder(folder, lock, capacity)


def _make(path: Path, name: str) -> Path:
    """A new folder: whatever stands there under such a name, a link perhaps, is not ours."""
    for number in count():
        folder = path / f"{name}-{number}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            break
    return folder


def _survey(path: Path) -> list[_Seen]:
    """The folders under a path that are ours. Links, folders of other users and other names are not even looked at."""
    seen = []
    for entry in os.scandir(path):
        with suppress(OSError):  # it went meanwhile
            status = entry.stat(follow_symlinks=False)
            if _NAME.fullmatch(entry.name) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                seen.append(_look(Path(entry.path)))
    return seen


def _look(folder: Path) -> _Seen:
    lock = _try_lock(folder)
    if lock is not None:
        os.close(lock)
    used_s = (folder / _LOCK).stat().st_mtime
    num_bytes = sum((folder / name).lstat().st_size for name in (ENTRIES, BLOCKS) if (folder / name).exists())
    if lock is None:
        with suppress(ValueError):  # damaged: it cannot take less than it has
            num_bytes = int((folder / _LOCK).read_bytes())
    return _Seen(folder, num_bytes, used_s, owned=lock is None)


def _delete(folder: Path) -> None:
    """Deletes our files in a folder, and the folder if nothing else is in it."""
    for name in (BLOCKS, ENTRIES, _LOCK):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _try_lock(folder: Path) -> int | None:
    """The open lock of a folder, held until it is closed; None if somebody else holds it."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return lock


@contextmanager
def _looking_round(path: Path) -> Iterator[None]:
    """Nobody else does, meanwhile."""
    patient_until = time.monotonic() + _PATIENCE_S
    while (lock := _try_lock(path)) is None:
        if time.monotonic() > patient_until:
            raise TimeoutError(f"another process has held {path / _LOCK} for {_PATIENCE_S:g} s")
        time.sleep(0.01)
    try:
        yield
    finally:
        os.close(lock)
