"""A thread that does jobs one after the other."""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

MAX_QUEUED = 1024
"""Jobs that may wait behind one that hangs; more are refused."""


class Lane:
    """Runs jobs in the order in which they were given, in a thread of its own that does not keep the process alive, nor
    whoever gives it jobs."""

    def __init__(self, name: str, at_end: Callable[[], None]) -> None:
        """`at_end` is the last thing that the thread does, after `stop`."""
        self._jobs: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._at_end = at_end
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def put(self, job: Callable[[], None], *, always: bool = False) -> bool:
        """Queues a job; returns whether it was taken. Refused if the lane was stopped or, unless `always`, is full."""
        with self._changed:
            if self._stopped or (len(self._jobs) >= MAX_QUEUED and not always):
                return False
            self._jobs.append(job)
            self._changed.notify()
        return True

    def stop(self) -> None:
        """Takes no more jobs; the thread ends after those that are queued."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread to end; returns whether it has. Within the thread itself it cannot."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while self._do_next():
            pass
        _guarded(self._at_end)

    def _do_next(self) -> bool:
        """Holds nothing of the job when it returns: whoever gave it may be forgotten before the next one comes."""
        job = self._next()
        if job is None:
            return False
        _guarded(job)
        return True

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._jobs and not self._stopped:
                self._changed.wait()
            return self._jobs.popleft() if self._jobs else None


def _guarded(job: Callable[[], None]) -> None:
    """Jobs report what goes wrong in them; what still comes out is a mistake of ours, and no reason to end the lane."""
    try:
        job()
    except Exception:
        log.exception("a job of %s failed", threading.current_thread().name)
