"""Waking a thread that waits for several things: sockets, and other threads."""

import os
import select
import threading
from collections.abc import Sequence


class Waker:
    """A flag that any thread may raise and one thread waits for; a pipe underneath, so that it can be polled together
    with sockets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_raised = False
        self._is_closed = False
        self._end, self._other_end = os.pipe()

    def fileno(self) -> int:
        """What to poll for reading."""
        return self._end

    def wake(self) -> None:
        """Raises the flag. From any thread, also after `close`."""
        with self._lock:
            if not (self._is_raised or self._is_closed):
                self._is_raised = True
                os.write(self._other_end, b"!")

    def take(self) -> bool:
        """Lowers the flag; whether it was raised."""
        with self._lock:
            was_raised, self._is_raised = self._is_raised, False
            if was_raised:
                os.read(self._end, 1)
        return was_raised

    def wait(self, timeout_s: float | None) -> None:
        """Waits until the flag is raised, or for so long."""
        wait_for_any([self], timeout_s)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._is_raised = False
                os.close(self._end)
                os.close(self._other_end)


def wait_for_any(wakers: Sequence[Waker], timeout_s: float | None) -> None:
    """Waits until one of the flags is raised, or for so long."""
    poller = select.poll()
    for waker in wakers:
        poller.register(waker, select.POLLIN)
    poller.poll(None if timeout_s is None else 1e3 * timeout_s)
