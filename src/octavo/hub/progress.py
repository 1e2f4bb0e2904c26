"""How a fetch reports what it does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

_LOG = logging.getLogger("octavo.hub")
_INTERVAL_S = 0.2


class Progress(Protocol):
    """Receives the events of one fetch; calls may come from another thread, never two at a time."""

    def notice(self, text: str) -> None:
        """Something that the user has to see: a licence before its download, or that another process is fetching."""
        ...

    def update(self, what: str, done_bytes: int, total_bytes: int | None) -> None:
        """`done_bytes` of `what` are here; `total_bytes` where the size is known."""
        ...


class LoggedProgress:
    """Notices go to the log as warnings, byte counts nowhere: what callers get who pass no progress."""

    def notice(self, text: str) -> None:
        _LOG.warning(text)

    def update(self, what: str, done_bytes: int, total_bytes: int | None) -> None:
        """Byte counts are for terminals; a log wants none."""


@contextmanager
def watch_growth(folder: Path, report: Callable[[int], None]) -> Iterator[None]:
    """Reports the bytes under `folder` while the body runs.

    Watching the disk works with every version of pip and of the hub's client; their own progress hooks differ.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL_S):
            report(folder_bytes(folder))

    thread = threading.Thread(target=watch, name="octavo-download-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def folder_bytes(folder: Path) -> int:
    """Bytes of all files under a folder; files that vanish meanwhile count as nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            stat = path.lstat()
        except FileNotFoundError:
            continue
        total += stat.st_size if path.is_file() else 0
    return total
