"""An engine core in this process, stepped by whoever waits for an answer.

Generations share the core: several threads may generate, and a generation may rest (a `stream` whose caller does
something else) while another goes on. A step serves all of them; what it brings one that rests waits for it.
"""

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from octavo import _native
from octavo.engine.core import EngineCore
from octavo.engine.output_processor import OutputStream
from octavo.engine.signals import held_back_signals
from octavo.errors import EngineDeadError
from octavo.request.outputs import RequestOutput
from octavo.request.request import GenerateRequest

Answer = TypeVar("Answer")
Result = TypeVar("Result")

PATIENCE_S = 0.1
"""How long a wait for the core may go on before signal handlers get their chance."""


class _Run(Generic[Result]):
    """One generation: which of its core requests have not ended, and the deltas that nobody has fetched yet."""

    def __init__(self, streams: Sequence[OutputStream[Result]]) -> None:
        self.stream_by_id = {choice.request_id: stream for stream in streams for choice in stream.request.choices}
        self.open = dict.fromkeys(self.stream_by_id)
        self.deltas: deque[Result] = deque()

    @property
    def waits(self) -> bool:
        return bool(self.open) and not self.deltas

    def push(self, output: RequestOutput, core: EngineCore) -> None:
        """Takes an output; tells the core if its request has ended otherwise here than there."""
        stream = self.stream_by_id[output.request_id]
        delta, told = stream.push(output)
        stats = None if told is None else core.end(told)
        if stats is not None:
            delta = stream.with_ledger(delta, stats)
        if told is not None or output.finish_reason is not None:
            del self.open[output.request_id]
        if delta is not None:
            self.deltas.append(delta)


class LocalEngine:
    """The core and the generations that share it. One thread at a time has the core, for one step or less."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.clock = core.clock
        """Of ledgers."""
        self._changed = threading.Condition()
        """Guards `_busy`; notified when the core is free again, with whatever a step has brought."""
        self._busy = False
        self._run_by_id: dict[str, _Run[Any]] = {}
        """Core request id -> whose it is, until it ends or is given up."""
        self._arrived: deque[GenerateRequest] = deque()
        """Requests that the core's bounded queue has not taken yet."""
        self._given_up: deque[str] = deque()
        """To be aborted by whoever has the core next: a generator may be finalised anywhere, even in mid-step."""
        self._lost: str | None = None
        """Why the core cannot go on."""
        self._keeper: int | None = None
        """The only thread that may still have the core."""
        _LIVE.add(self)
        atexit.unregister(_keep_all_cores)  # the last to be registered is the first to be called, so while steps may
        atexit.register(_keep_all_cores)  # still run, whoever runs them

    def run(self, streams: Sequence[OutputStream[Result]], came_s: float) -> Generator[Result, None, None]:
        """Runs requests, yielding what comes of them; leaving the loop early ends those that still run.

        Args:
            came_s: when they were asked for, on `clock`.

        Raises:
            EngineDeadError: the engine is closed, or a step was broken off.
        """
        run = _Run(streams)
        self._run_by_id.update(dict.fromkeys(run.open, run))
        choices = [choice for stream in streams for choice in stream.request.choices]
        sent_s = self.clock()
        self._arrived.extend(msgspec.structs.replace(choice, received_s=came_s, sent_s=sent_s) for choice in choices)
        try:
            while run.deltas or run.open:
                while run.deltas:
                    yield run.deltas.popleft()
                self._have_core(self._work, while_needed=lambda: run.waits)
        finally:
            self._given_up.extend(list(run.open))  # in one piece: other threads take from it
            self._have_core(self._abort_given_up, while_needed=lambda: bool(self._given_up), wait=False)

    def ask(self, question: Callable[[EngineCore], Answer]) -> Answer:
        """Asks the core something between two steps.

        Raises:
            EngineDeadError: as `run`.
        """
        self._check_alive()
        (answer,) = self._have_core(question)
        return answer

    def close(self) -> None:
        """Ends the core; a generation that rests finds out when it goes on. Idempotent."""
        self._lost = "it was closed"
        self._have_core(EngineCore.close)

    def keep(self) -> None:
        """Waits for the core and keeps it from all other threads, which wait for it from now on."""
        while not self._take_turn(lambda: True, wait=True):
            pass
        self._keeper = threading.get_ident()
        self._end_turn()

    def _have_core(
        self,
        use: Callable[[EngineCore], Answer],
        *,
        while_needed: Callable[[], bool] = lambda: True,
        wait: bool = True,
    ) -> list[Answer]:
        """Waits for the core and uses it; gives up, with nothing, when there is no need any more, or without `wait` at
        once. No signal handler runs in between, so none can leave the core or the turn in a half-done state."""
        while while_needed():
            with held_back_signals():
                if self._take_turn(while_needed, wait):
                    try:
                        return [use(self._core)]
                    finally:
                        self._end_turn()
            if not wait:
                break
        return []

    def _take_turn(self, while_needed: Callable[[], bool], wait: bool) -> bool:
        with self._changed:
            if not self._is_free and wait:
                self._changed.wait(PATIENCE_S)
            mine = self._is_free and while_needed()
            self._busy = self._busy or mine
        return mine

    @property
    def _is_free(self) -> bool:
        """For this thread."""
        return not self._busy and self._keeper in (None, threading.get_ident())

    def _end_turn(self) -> None:
        """Gives the core back, having aborted what was given up meanwhile by those who found it taken."""
        while True:
            self._abort_given_up(self._core)
            with self._changed:
                if not self._given_up:
                    self._busy = False
                    self._changed.notify_all()
                    return

    def _check_alive(self) -> None:
        if self._lost is not None:
            raise EngineDeadError(f"this engine cannot be used any more: {self._lost}; make a new one")

    def _work(self, core: EngineCore) -> None:
        """Hands over requests, makes one step, and gives each run what is its own."""
        self._check_alive()
        refusals = self._hand_over(core)
        if not core.has_work and not refusals:
            raise RuntimeError(f"{len(self._run_by_id)} requests have not ended, but the core has nothing to do")
        try:
            core.rest(PATIENCE_S)
            outputs = core.step()
        except BaseException as error:
            self._lost = f"a step was broken off by {type(error).__name__}: {error}"
            raise
        with core.profiler.span("output"):
            self._take(core, refusals + outputs)

    def _hand_over(self, core: EngineCore) -> list[RequestOutput]:
        """Gives requests to the core while its queue takes them; returns the refusals."""
        refusals = []
        while self._arrived and not core.queue_full:
            request = self._arrived.popleft()
            if request.request_id in self._run_by_id:
                refusal = core.add(request)
                refusals += [] if refusal is None else [refusal]
        return refusals

    def _take(self, core: EngineCore, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            run = self._run_by_id.get(output.request_id)
            if run is None:
                continue  # given up in mid-step
            run.push(output, core)
            if output.request_id not in run.open:
                del self._run_by_id[output.request_id]

    def _abort_given_up(self, core: EngineCore) -> None:
        while self._given_up:
            request_id = self._given_up.popleft()
            if self._run_by_id.pop(request_id, None) is not None and self._lost is None:
                core.abort([request_id])


_LIVE: weakref.WeakSet[LocalEngine] = weakref.WeakSet()


def _keep_all_cores() -> None:
    """At the interpreter's end only daemon threads are left beside the main one. One that comes back from a native call
    then is ended where it stands, and a C++ frame that is ended by force takes the process down. So nobody may be in a
    step, or begin one, any more. What these threads hold cannot be freed, which is no leak worth a warning."""
    if threading.active_count() > 1:
        _native.set_leak_warnings(False)
    for engine in list(_LIVE):
        engine.keep()
