"""How far the loading of a big model is: a bar on a terminal, lines in the log elsewhere, nothing for small ones."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from octavo.sizes import size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_S = 1.0
"""Loads that take no longer say nothing."""
LINE_EVERY_S = 5.0

log = logging.getLogger(__name__)


class LoadProgress:
    """Is told of bytes that are loaded, and tells people. As a context manager it leaves no bar behind."""

    def __init__(self, name: str, clock: Callable[[], float], *, on_terminal: bool | None = None) -> None:
        """
        Args:
            name: of the model.
            on_terminal: whether to draw; None: if stderr is one.
        """
        self._name, self._clock = name, clock
        self._draws = sys.stderr.isatty() if on_terminal is None else on_terminal
        self._began_s = self._told_s = clock()
        self._bar: tuple[Progress, TaskID] | None = None

    def report(self, done_bytes: int, total_bytes: int) -> None:
        """So many bytes are loaded, of so many."""
        now = self._clock()
        if now - self._began_s < QUIET_S:
            return
        if self._draws:
            self._draw(done_bytes, total_bytes)
        elif now - self._told_s >= LINE_EVERY_S and done_bytes < total_bytes:
            self._told_s = now
            share = 100 * done_bytes // total_bytes
            log.info("loading %s: %s of %s (%d %%)", self._name, size_text(done_bytes), size_text(total_bytes), share)

    def _draw(self, done_bytes: int, total_bytes: int) -> None:
        if self._bar is None:
            self._bar = _new_bar(self._name)
        bars, task = self._bar
        bars.update(task, completed=done_bytes, total=total_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()


def _new_bar(name: str) -> tuple[Progress, TaskID]:
    from rich.console import Console  # noqa: PLC0415  most starts draw nothing
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task(f"loading {name}", total=None)
    bars.start()
    return bars, task
