"""A file mapped into memory, read-only, with its errors in words."""

from __future__ import annotations

import mmap
import stat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelFileError

_MAX_PROBLEM = 600


class MappedFile:
    """The bytes of one file without reading them. The mapping lives as long as this object or a view of it.

    Raises ModelFileError where the path is no readable, non-empty regular file. (A file that another program truncates
    while it is mapped cannot be guarded against; downloads are therefore renamed into place, never written in place.)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for a writer
                raise ModelFileError("is a folder or device where a model file was expected", str(path))
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelFileError(_reason(path, error), str(path)) from error
        self.size = len(self.data)

    def view(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        """`num_bytes` from `offset` as a read-only array over the mapping."""
        return np.frombuffer(self.data, dtype=np.uint8, count=num_bytes, offset=offset)

    def give_back(self, offset: int, num_bytes: int) -> None:
        """Drops the whole pages of a range from memory; they are read again where they are needed again."""
        start, stop = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE, (offset + num_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if start < stop:
            self.data.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def bad(self, offset: int, problem: str) -> ModelFileError:
        """The error to raise for a fault at this byte."""
        return ModelFileError(_shortened(problem), str(self.path), offset)


def _shortened(problem: str) -> str:
    """Names in a hostile file may be megabytes long."""
    return (
        problem
        if len(problem) <= _MAX_PROBLEM
        else f"{problem[: _MAX_PROBLEM // 2]} ... {problem[-_MAX_PROBLEM // 2 :]}"
    )


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file; check the path"
    if isinstance(error, ValueError):
        return "the file is empty; fetch it again"
    return f"cannot be read ({error.strerror if isinstance(error, OSError) else error}); check its permissions"
