"""Keeping signal handlers out of what must not be left half done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]

_RAISING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""Signals whose handlers commonly raise: Ctrl-C, orderly exits, time limits."""


@contextmanager
def held_back_signals() -> Iterator[None]:
    """Handlers of SIGINT, SIGTERM and SIGALRM run after the block instead of inside it.

    Python runs handlers in the main thread between any two instructions, and an exception from there (such as
    KeyboardInterrupt) would leave a step half done. Masking the signals does not help: another thread would receive
    them, and the handler would run all the same. In other threads this does nothing, for nothing runs there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = {number: handler for number in _RAISING if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda arriving, _: arrived.append(arriving))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrival in arrived:
            handlers[signal.Signals(arrival)](arrival, None)
