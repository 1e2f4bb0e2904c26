"""A thread that does one job at a time beside its owner."""

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Generic, TypeVar

Result = TypeVar("Result")


class SideThread(Generic[Result]):
    """Begins with its first job. It knows the queues only, not this object: when this is forgotten, it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], Result] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Callable[[], Result]] = SimpleQueue()
        self._is_begun = False

    def begin(self, job: Callable[[], Result]) -> None:
        """Has a job done; `result` must be asked for before the next one."""
        if not self._is_begun:
            self._is_begun = True
            thread = Thread(target=_work, args=(self._jobs, self._outcomes), name=self._name, daemon=True)
            thread.start()
            weakref.finalize(self, _end, thread, self._jobs)
        self._jobs.put(job)

    def result(self) -> Result:
        """Waits for the job; gives what it returned, or raises what it raised."""
        return self._outcomes.get()()


def _work(jobs: SimpleQueue[Callable[[], Result] | None], outcomes: SimpleQueue[Callable[[], Result]]) -> None:
    while (job := jobs.get()) is not None:
        outcomes.put(_outcome(job))


def _outcome(job: Callable[[], Result]) -> Callable[[], Result]:
    """What gives the job's result, or raises its exception, wherever it is called."""
    try:
        result = job()
    except BaseException as error:  # whoever waits for it raises it
        raised = error

        def fail() -> Result:
            raise raised

        return fail
    return lambda: result


def _end(thread: Thread, jobs: SimpleQueue[Callable[[], Result] | None]) -> None:
    """Waits for the thread, too: no interpreter may go away under a native call."""
    jobs.put(None)
    if thread is not current_thread():
        thread.join()
