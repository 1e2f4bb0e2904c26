"""Steps on their way through an executor: one after the other where the result is awaited, or in a thread beside it."""

import weakref
from collections import deque
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Protocol

from octavo.errors import EngineDeadError
from octavo.execution.protocols import StepExecutor
from octavo.scheduling.plan import StepPlan, StepResult

Outcome = StepResult | BaseException


class Stepping(Protocol):
    """Runs plans in the order in which they are started."""

    def start(self, plan: StepPlan) -> None:
        """Has a plan run behind those that were started before."""
        ...

    def land(self) -> StepResult:
        """Waits for the oldest plan that was started and not landed.

        Raises:
            Exception: what the executor raised, in that step or an earlier one: it is lost.
        """
        ...

    def close(self) -> None:
        """Ends, after the steps that were started. The executor stays open. Idempotent."""
        ...


class InTurn:
    """Runs a step when its result is asked for, in the caller's thread: no switch of threads, no overlap."""

    def __init__(self, executor: StepExecutor) -> None:
        self._executor = executor
        self._plans: deque[StepPlan] = deque()
        self._lost: BaseException | None = None

    def start(self, plan: StepPlan) -> None:
        """See `Stepping.start`."""
        self._plans.append(plan)

    def land(self) -> StepResult:
        """See `Stepping.land`."""
        if self._lost is not None:
            raise self._lost
        try:
            return self._executor.execute(self._plans.popleft())
        except BaseException as error:
            self._lost = error
            raise

    def close(self) -> None:
        """See `Stepping.close`."""
        self._plans.clear()


class InBackground:
    """Runs steps in a thread of its own, so that whoever plans them can do something else meanwhile.

    The thread knows only the executor and the queues, not this object: when this is forgotten without `close`, or the
    program ends, it ends behind the step that it is in, and lets go of the executor.
    """

    def __init__(self, executor: StepExecutor) -> None:
        self._plans: SimpleQueue[StepPlan | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._lost: BaseException | None = None
        self._thread = Thread(
            target=_run_all, args=(executor, self._plans, self._outcomes), name="octavo-steps", daemon=True
        )
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._thread, self._plans)

    def start(self, plan: StepPlan) -> None:
        """See `Stepping.start`."""
        self._plans.put(plan)

    def land(self) -> StepResult:
        """See `Stepping.land`."""
        if self._lost is None:
            outcome = self._outcomes.get()
            if not isinstance(outcome, BaseException):
                return outcome
            self._lost = outcome
        raise self._lost

    def close(self) -> None:
        """See `Stepping.close`."""
        self._end()


def _end(thread: Thread, plans: SimpleQueue[StepPlan | None]) -> None:
    """Waits for the thread, too: no interpreter may go away under a running step."""
    plans.put(None)
    if thread is not current_thread():  # where the garbage collector may find the owner gone
        thread.join()


def _run_all(executor: StepExecutor, plans: SimpleQueue[StepPlan | None], outcomes: SimpleQueue[Outcome]) -> None:
    """Runs plans until None comes, or one raises. Who waits for a step behind that is told."""
    while (plan := plans.get()) is not None:
        try:
            outcomes.put(executor.execute(plan))
        except BaseException as error:  # whoever waits for the step raises it
            outcomes.put(error)
            return
    outcomes.put(EngineDeadError("no more steps are run"))
