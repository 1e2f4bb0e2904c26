"""How many requests each API process of a server has in progress: numbers in memory that the processes share, so that
any of them can tell the sum at once."""

import mmap
import os
from pathlib import Path

_NUMBER_BYTES = 8


class BusyBoard:
    """One number per API process; each writes its own and reads all."""

    def __init__(self, path: Path | None = None, *, process: int = 0, num_processes: int = 1) -> None:
        """
        Args:
            path: a file in a private folder, the same for all processes, made by the first; None: there is one process.
            process: which of them this is, from 0.
        """
        self._numbers = memoryview(_memory(path, num_processes * _NUMBER_BYTES)).cast("q")
        self._process = process
        self._numbers[process] = 0

    @property
    def total(self) -> int:
        """Requests in progress in all processes."""
        return sum(self._numbers)

    def write(self, count: int) -> None:
        """Sets this process's number."""
        self._numbers[self._process] = count

    def clear(self, process: int) -> None:
        """Sets the number of a process that is gone."""
        self._numbers[process] = 0


def _memory(path: Path | None, size: int) -> bytearray | mmap.mmap:
    if path is None:
        return bytearray(size)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(file).st_size < size:
            os.ftruncate(file, size)  # with zeros; twice does no harm
        return mmap.mmap(file, size)
    finally:
        os.close(file)
