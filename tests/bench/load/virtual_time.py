"""An event loop whose clock stands still while anything can be done, and else jumps to the next timer.

Between Unix sockets, what one end has written the other can read at once, so nothing is ever under way when the clock
jumps: client and server in one such loop see times that are exact, on any machine.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _NoWaiting(selectors.DefaultSelector):
    """Reports what is ready; where nothing is, tells the loop's clock instead of waiting."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            self.loop.jump()
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Begins at 0."""

    def __init__(self) -> None:
        selector = _NoWaiting()
        selector.loop = self
        self._now_s = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self._now_s

    def jump(self) -> None:
        """To the next timer."""
        timers = self._scheduled  # type: ignore[attr-defined]
        if not timers:
            raise RuntimeError("everybody waits and nothing is due: a deadlock")
        self._now_s = max(self._now_s, timers[0].when())


def run_virtually(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine to its end, in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
