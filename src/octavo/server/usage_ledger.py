"""What each API key uses: one ledger for all API processes of a server, so that limits are exact across them."""

import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from octavo.server.api_keys import ApiKey
from octavo.server.rate_window import CELLS, RateWindow

NUMBER_BYTES = 8


class KeyUsage:
    """What one key used and holds. Read and write it within `UsageLedger.locked`."""

    def __init__(self, key: ApiKey, cells: memoryview, process: int) -> None:
        self.key = key
        limits = key.limits
        self.requests = RateWindow(limits.requests_per_minute, cells[:CELLS]) if limits.requests_per_minute else None
        self.tokens = (
            RateWindow(limits.tokens_per_minute, cells[CELLS : 2 * CELLS]) if limits.tokens_per_minute else None
        )
        self._in_progress = cells[2 * CELLS :]
        self._process = process

    @property
    def in_progress(self) -> int:
        """Requests of the key in all processes."""
        return sum(self._in_progress)

    def enter(self) -> None:
        """One more in this process."""
        self._in_progress[self._process] += 1

    def leave(self) -> None:
        """One less."""
        self._in_progress[self._process] -= 1

    def forget_process(self) -> None:
        """What this process held before it began anew is gone."""
        self._in_progress[self._process] = 0


class UsageLedger:
    """The usage of all keys. Several processes open the same file; a single one needs none."""

    def __init__(
        self, keys: Sequence[ApiKey], path: Path | None = None, *, process: int = 0, num_processes: int = 1
    ) -> None:
        """
        Args:
            keys: the same in every process.
            path: a file in a private folder that the processes share, made by the first; it holds numbers only.
            process: which of them this is, from 0; another process of that number must have ended.
        """
        width = 2 * CELLS + num_processes
        self._file = None if path is None else os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        cells = _cells(width * len(keys), self._file)
        self._usage = {
            key.digest: KeyUsage(key, cells[number * width : (number + 1) * width], process)
            for number, key in enumerate(sorted(keys, key=lambda key: key.digest))
        }
        with self.locked():
            for usage in self._usage.values():
                usage.forget_process()

    def of(self, key: ApiKey) -> KeyUsage:
        """The usage of one key."""
        return self._usage[key.digest]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Around whatever must happen in one piece: no other process reads or writes meanwhile. Within a process the
        event loop's thread alone does."""
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX)  # of the process: it ends with it
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def _window(limit: int, cells: memoryview) -> RateWindow | None:
    return RateWindow(limit, cells) if limit else None


def _cells(count: int, file: int | None) -> memoryview:
    size = max(1, count) * NUMBER_BYTES
    if file is None:
        return memoryview(bytearray(size)).cast("q")
    if os.fstat(file).st_size < size:
        os.ftruncate(file, size)  # with zeros; twice does no harm
    return memoryview(mmap.mmap(file, size)).cast("q")
