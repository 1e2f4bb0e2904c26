"""A file that is read and written at places."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class SlotFile(Protocol):
    """An open file. All methods raise OSError as the system does."""

    def read(self, offset: int, out: memoryview) -> int:
        """Fills `out` from the file; returns how many bytes there were."""
        ...

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Writes all of `data`."""
        ...

    def size(self) -> int:
        """Bytes up to the end of the file."""
        ...

    def cut(self, size: int) -> None:
        """Drops what lies beyond `size`; a shorter file is left as it is."""
        ...

    def is_linked(self) -> bool:
        """Whether the file still has a name: one that was deleted goes when it is closed."""
        ...

    def close(self) -> None: ...


OpenFile = Callable[[Path], SlotFile]


class DiskFile:
    """A `SlotFile` of the system, for its owner alone.

    Not mapped: a mapped file that somebody cuts short, or a disk that fails, kills the process; here it is an error.
    """

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. A link or anything but a plain file is refused, with an OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise OSError(errno.EINVAL, "not a plain file", str(path))

    def read(self, offset: int, out: memoryview) -> int:
        """See `SlotFile.read`."""
        done = 0
        while done < len(out):
            got = os.preadv(self._fd, [out[done:]], offset + done)
            if got == 0:
                break
            done += got
        return done

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """See `SlotFile.write`."""
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fd, view, offset)
            view, offset = view[done:], offset + done

    def size(self) -> int:
        """See `SlotFile.size`."""
        return os.fstat(self._fd).st_size

    def cut(self, size: int) -> None:
        """See `SlotFile.cut`."""
        if self.size() > size:
            os.ftruncate(self._fd, size)

    def is_linked(self) -> bool:
        """See `SlotFile.is_linked`."""
        return os.fstat(self._fd).st_nlink > 0

    def close(self) -> None:
        """See `SlotFile.close`."""
        os.close(self._fd)
