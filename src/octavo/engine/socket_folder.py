"""The private folder of a core's sockets, and what killed processes have left of theirs.

Whoever makes a folder holds a lock in it for as long as both are there; the system lets go of the lock of a process
that is gone, however it went. So a folder whose lock is free is nobody's, and the next start removes it. A lock tells
more than a process id, which may be another process's by then.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from octavo.engine import wire

MAX_CLIENTS = 99
PREFIX = "octavo-"
LOCK = "lock"

_SOCKET_PATH_MAX_BYTES = 103
"""Longest path of a socket that every Unix takes (104 bytes with the zero at its end)."""


class SocketFolder:
    """A new folder of mode 0700, so that its sockets are for this user only."""

    def __init__(self) -> None:
        """Makes it, and removes those that have been left behind."""
        parent = _parent()
        remove_abandoned(parent)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._lock: int | None = _locked(self.path)

    def remove(self) -> None:
        """Removes it with all that it holds. Idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: Path) -> None:
    """Removes this user's folders whose makers are gone. Whatever else is there is left alone, also what another
    process is removing."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), _free_lock(folder) as is_free:
            if is_free:
                shutil.rmtree(folder, ignore_errors=True)


def _parent() -> Path:
    """The usual folder for temporary files, or /tmp where the path of a socket in it would be too long."""
    usual = Path(tempfile.gettempdir())
    addresses = wire.addresses(usual / f"{PREFIX}{'x' * 8}", MAX_CLIENTS)
    longest = max(addresses, key=len).removeprefix("ipc://")
    return usual if len(os.fsencode(longest)) <= _SOCKET_PATH_MAX_BYTES else Path("/tmp")


def _locked(folder: Path) -> int:
    """A lock that gets its name when it is held, so that nobody finds a free one in a folder that is in use."""
    unnamed = folder / f"{LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / LOCK)
    return lock


@contextlib.contextmanager
def _free_lock(folder: Path) -> Iterator[bool]:
    """Whether the lock of a folder was free; held until the end.

    Raises:
        OSError: it is not this user's folder, or there is no lock, or it is held.
    """
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(folder)
    name = folder / LOCK
    lock = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield name.stat().st_ino == os.fstat(lock).st_ino
    finally:
        os.close(lock)
