"""The engine core: one scheduler, one executor, one loop. The same object runs in-process and in the server's core
process; it holds no socket, and its clock is an argument."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from octavo.engine.grammar_desk import GrammarDesk
from octavo.engine.kv_publisher import KVPublisher
from octavo.engine.ledger_prices import LedgerPrices
from octavo.engine.ledgers import Ledgers
from octavo.engine.profiler import Profiler
from octavo.engine.refusals import REFUSALS, refusal_of, refused_output
from octavo.engine.step_rates import StepRates
from octavo.engine.step_telemetry.recorder import Landing, StepRecorder
from octavo.engine.stepping import InBackground, InTurn, Stepping
from octavo.engine.traces import TraceFile
from octavo.engine.transfer_desk import TransferDesk
from octavo.engine.waker import wait_for_any
from octavo.execution.protocols import StepExecutor
from octavo.request.control import EngineLoad, ExpertFigures
from octavo.request.ledger import ChoiceLedger, Delivered, RequestLedger
from octavo.request.orders import End, PauseMode
from octavo.request.outputs import FinishReason, RequestOutput, RequestStats
from octavo.request.pin import PinRequest, SessionState
from octavo.request.request import GenerateRequest
from octavo.scheduling.plan import StepPlan
from octavo.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)


class EngineCore:
    """Steps requests through scheduler and executor: `schedule -> execute -> update`.

    A scheduler that plans ahead has its steps run in the background. While step t + 1 runs the core takes in the result
    of step t, its caller passes on what that has brought and takes in what is new, and the core plans step t + 2:

        background    | step t        | step t + 1          | step t + 2 ...
        core            plan t + 1 ...  update t | plan t + 2 ...

    All but the steps themselves happens in the caller's thread, one call at a time.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: StepExecutor,
        clock: Callable[[], float],
        publisher: KVPublisher | None = None,
        desk: TransferDesk | None = None,
        grammars: GrammarDesk | None = None,
        recorder: StepRecorder | None = None,
        profiler: Profiler | None = None,
        prices: LedgerPrices | None = None,
        expert_figures: Callable[[], list[ExpertFigures]] = list,
    ) -> None:
        """
        Args:
            publisher: hears of changes of the cache (its `observer` has been introduced to whoever makes them); the
                core tells it when a step is done, and closes it.
            desk: of the stores of the scheduler's tiers; None: there are none.
            grammars: for answers of a given shape; None: the scheduler refuses them.
            recorder: is told of every step; the core closes it. None: one that nobody follows.
            profiler: for this clock; None: one that knows no ops.
            prices: of the model's work. None: ledgers count it, without prices.
            expert_figures: how its experts have been used so far; may be called beside a step.
        """
        self.profiler = profiler or Profiler(clock)
        self.profiler.live = partial(_live, scheduler)
        self.trace_file: TraceFile | None = None
        """Where the profiler's first profile goes at the end; None: it has not been started."""
        self._scheduler = scheduler
        self._executor = executor
        self._clock = self.clock = clock
        self._publisher = publisher
        self._desk = desk
        self._grammars = grammars
        self.wakers = tuple(one.waker for one in (desk, grammars) if one is not None)
        """What is woken when a helper has something to report."""
        self._refused: list[RequestOutput] = []
        """Ends of requests whose grammars cannot be had, until `step` returns them."""
        self._stepping: Stepping = InBackground(executor) if scheduler.max_in_flight > 1 else InTurn(executor)
        self._in_flight: deque[StepPlan] = deque()
        self._waits = False
        """Nothing ran when the core was stepped last, although there was work, and nothing has come since."""
        self._ledgers = Ledgers()
        self._prices = prices
        self._expert_figures = expert_figures
        self._rates = StepRates()
        self._recorder = StepRecorder() if recorder is None else recorder
        self.before_landing: Callable[[StepPlan], None] = _nobody
        """Called with the newest plan before the core waits for a step, until `close`."""
        self._step_seconds = dict.fromkeys(
            ("schedule_s", "prepare_s", "execute_s", "sample_s", "draft_s", "update_s", "publish_s"), 0.0
        )
        if publisher is not None:
            publisher.flush()  # what tiers have kept from before

    @property
    def has_work(self) -> bool:
        """Whether a call of `step` could do something."""
        return self._scheduler.has_work or bool(self._in_flight)

    @property
    def queue_full(self) -> bool:
        """Whether the bounded waiting queue would refuse a request now."""
        return self._scheduler.queue_full

    def add(self, request: GenerateRequest) -> RequestOutput | None:
        """Queues a request. What can never run is answered at once with the returned output, and so is a request that
        something stumbles over, such as a policy of somebody else's."""
        self._waits = False
        try:
            self._scheduler.add(request, self._clock())
        except REFUSALS as error:
            return refused_output(request.request_id, refusal_of(error))
        except Exception as error:
            log.error("request %s cannot be queued", request.request_id, exc_info=error)
            return RequestOutput(
                request_id=request.request_id,
                finish_reason=FinishReason.ERROR,
                error=f"the request cannot be queued ({type(error).__name__}); the engine's log says more",
            )
        self._ledgers.opened(request)
        return None

    def abort(self, request_ids: Iterable[str]) -> None:
        """Ends requests in any state without further output; unknown and finished ids are ignored."""
        self.cancel(request_ids)

    def cancel(self, request_ids: Iterable[str]) -> list[RequestOutput]:
        """Ends requests in any state. Returns their last outputs, with finish reason `abort`, of those that were
        live."""
        self._waits = False
        outputs = []
        for request_id in request_ids:
            request = self._scheduler.live(request_id)
            if request is not None:
                now_s = self._clock()
                self._scheduler.abort(request_id, now_s)
                stats = self._close_ledger(request_id, FinishReason.ABORT, request.ledger(now_s))
                outputs.append(RequestOutput(request_id=request_id, finish_reason=FinishReason.ABORT, stats=stats))
        return outputs

    def cancel_named(self, tenant: str, names: Iterable[str]) -> tuple[list[str], list[RequestOutput]]:
        """Ends API requests of a tenant. Returns the ids of those that were live, and the last outputs of theirs."""
        found = self._ledgers.live_ids(tenant, names)
        return list(found), self.cancel([request_id for ids in found.values() for request_id in ids])

    def end(self, told: End) -> RequestStats | None:
        """Ends a request, or puts its ledger right, as its caller was told. Returns its ledger, None if it is
        forgotten."""
        self._waits = False
        request = self._scheduler.live(told.request_id)
        if request is None:
            return self._ledgers.correct(told)
        now_s = self._clock()
        if told.reason is FinishReason.ERROR:
            self._scheduler.abort(told.request_id, now_s)
        else:
            self._scheduler.end(told.request_id, now_s)
        return self._close_ledger(told.request_id, told.reason, request.ledger(now_s))

    def ledger(self, tenant: str, name: str) -> RequestLedger | None:
        """The ledger of an API request of a tenant, live or recent; None if there is none of this id or name."""
        return self._ledgers.find(tenant, name, self._look, self._clock())

    def live_requests(self) -> list[RequestLedger]:
        """The API requests of all tenants that have not ended."""
        return self._ledgers.live(self._look, self._clock())

    def _look(self, request_id: str) -> ChoiceLedger:
        choice = _look_at(self._scheduler, request_id, self._clock())
        return msgspec.structs.replace(choice, stats=self._priced(choice.stats))

    def pause(self, mode: PauseMode) -> list[RequestOutput]:
        """Begins a pause, or goes on in another mode; `resume` ends it. Steps in flight still land.

        Returns:
            The last outputs of requests that it ends.
        """
        self._waits = False
        ended = self.cancel(self._scheduler.live_ids()) if mode is PauseMode.ABORT else []
        self._scheduler.pause(mode, self._clock())
        return ended

    def resume(self) -> None:
        """Ends a pause; no-op if there is none."""
        self._waits = False
        self._scheduler.resume(self._clock())

    def open_session(
        self, tenant: str, pin: PinRequest, token_ids: Sequence[int] = (), cache_salt: str | None = None
    ) -> SessionState:
        """See `Pins.open`."""
        return self._scheduler.pins.open(tenant, pin, self._clock(), token_ids, cache_salt)

    def extend_session(self, tenant: str, pin: PinRequest) -> SessionState | None:
        """See `Pins.extend`."""
        return self._scheduler.pins.extend(tenant, pin.session_id, pin.lease_s, self._clock())

    def end_session(self, tenant: str, session_id: str) -> bool:
        """See `Pins.release`."""
        return self._scheduler.pins.release(tenant, session_id)

    def sessions(self, tenant: str) -> list[SessionState]:
        """See `Pins.states`."""
        return self._scheduler.pins.states(tenant, self._clock())

    def patience_s(self) -> float | None:
        """How long `step` would have nothing to do, if neither a message nor a waker come first; None: for ever. For
        a core that has just been stepped."""
        if self._in_flight or (self._scheduler.has_work and not self._waits):
            return 0.0
        of_grammars = None if self._grammars is None else self._grammars.deadline_s()
        ends = (self._scheduler.next_lease_end_s(), of_grammars, self._recorder.beat_due_s)
        end_s = min((end for end in ends if end is not None), default=None)
        return None if end_s is None else max(0.0, end_s - self._clock())

    def rest(self, most_s: float) -> None:
        """Waits, at most so long, while all requests wait for KV or for grammars."""
        if self._waits:
            patience_s = self.patience_s()
            wait_for_any(self.wakers, most_s if patience_s is None else min(most_s, patience_s))

    def prepare_for_grammars(self) -> None:
        """Has the first grammar not wait for what all of them need; for a time when nobody waits for the core."""
        if self._grammars is not None:
            self._grammars.prepare()

    def step(self) -> list[RequestOutput]:
        """Plans as far ahead as the scheduler does, waits for the oldest step in flight and takes its result in.
        Nothing comes of it if all requests wait for KV, for grammars or for the end of a pause, or there are none.

        Any exception out of here means that the executor is lost, and with it the engine.
        """
        self._plan_ahead()
        refused, self._refused = self._refused, []
        if not self._in_flight:
            if self._publisher is not None:
                self._publisher.flush()  # stores may have reported something
            if self._recorder.beat_due_s is not None:
                self._recorder.beat(self._scheduler.surroundings()[0], self._clock())
            return self._close_ledgers(refused)
        self.before_landing(self._in_flight[-1])
        result = self._stepping.land()
        landed = self._clock()
        plan = self._in_flight.popleft()
        outputs = self._close_ledgers(refused + self._scheduler.update(plan, result, landed))
        self._rates.measured(plan, result.timings)
        if self._desk is not None:
            self._desk.landed(result.step)
        if self._grammars is not None:
            self._grammars.landed(result.step)
            self._pass_on_grammar_orders(self._grammars, landed)
        spent = self._step_seconds
        spent["prepare_s"] += result.timings.prepare_s
        spent["execute_s"] += result.timings.execute_s
        spent["sample_s"] += result.timings.sample_s
        spent["draft_s"] += result.timings.draft_s
        updated = ended = self._clock()
        spent["update_s"] += updated - landed
        if self._publisher is not None:
            self._publisher.flush()
            ended = self._clock()
            spent["publish_s"] += ended - updated
        if self.profiler.is_on:
            self.profiler.landed(plan, result, landed, ended)
        self._recorder.landed(plan, result, Landing(landed, updated, ended, self.has_work))
        return outputs

    def _close_ledgers(self, outputs: list[RequestOutput]) -> list[RequestOutput]:
        """The same outputs, the last ones of requests with their ledgers closed."""
        for place, output in enumerate(outputs):
            if output.finish_reason is not None and output.stats is not None:
                stats = self._close_ledger(output.request_id, output.finish_reason, output.stats)
                outputs[place] = msgspec.structs.replace(output, stats=stats)
        return outputs

    def _close_ledger(self, request_id: str, reason: FinishReason, stats: RequestStats) -> RequestStats:
        stats = self._priced(stats)
        self._ledgers.closed(request_id, reason, stats)
        self.profiler.closed(request_id, reason, stats)
        return stats

    def _priced(self, stats: RequestStats) -> RequestStats:
        return stats if self._prices is None else self._prices.price(stats)

    def delivered(self, note: Delivered) -> None:
        """The answer of an API request has left, or its client has; a note about one that is forgotten is ignored."""
        self._ledgers.delivered(note)

    def _plan_ahead(self) -> None:
        while len(self._in_flight) < self._scheduler.max_in_flight:
            started = self._clock()
            plan = self._schedule(started)
            planned = self._clock()
            self._step_seconds["schedule_s"] += planned - started
            if plan is None:
                break
            self._recorder.planned(plan, self._scheduler.surroundings(), started, planned)
            if self.profiler.is_on:
                plan = self.profiler.planned(plan, started, planned)
            self._in_flight.append(plan)
            self._stepping.start(plan)
        self._waits = self._scheduler.has_work and not self._in_flight

    def _schedule(self, now_s: float) -> StepPlan | None:
        """Plans a step between what stores have reported and what they are told. Orders go out first: no step may run
        while a store still touches blocks that it was given."""
        self._see_to_grammars(now_s)
        desk = self._desk
        if desk is None:
            return self._scheduler.schedule(now_s)
        self._scheduler.take_in(desk.poll(), now_s)
        plan = self._scheduler.schedule(now_s)
        orders = self._scheduler.transfer_orders(now_s)
        if orders is not None:
            desk.obey(orders)
        return plan

    def _see_to_grammars(self, now_s: float) -> None:
        """Passes on what is asked for and takes in what is there: a grammar that is known holds nobody up."""
        if self._grammars is not None:
            self._pass_on_grammar_orders(self._grammars, now_s)
            self._refused += self._scheduler.take_in_ready(self._grammars.poll(now_s), now_s)

    def _pass_on_grammar_orders(self, grammars: GrammarDesk, now_s: float) -> None:
        orders = self._scheduler.grammar_orders()
        if orders is not None:
            grammars.obey(orders, self._in_flight[-1].step if self._in_flight else None, now_s)

    def load(self) -> EngineLoad:
        """How busy the core is, with the totals of its counters; step times in seconds beside them."""
        now_s = self._clock()
        self._scheduler.pins.expire(now_s)
        load = self._scheduler.load()
        return msgspec.structs.replace(
            load,
            counters={**load.counters, **self._step_seconds},
            decode_step_s=self._rates.decode_step_s,
            prefill_tokens_per_s=self._rates.prefill_tokens_per_s,
            published_s=now_s,
            tallies=self._recorder.tallies(),
            step=self._recorder.newest,
            experts=self._expert_figures(),
        )

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached prefixes; False (and nothing done) while requests hold blocks."""
        done = self._scheduler.reset_prefix_cache()
        if self._publisher is not None:
            self._publisher.flush()
        return done

    def close(self) -> None:
        """Releases the executor and the stores, once no step runs any more; idempotent. What has not been stored so
        far is, as far as the stores get with it in a short time."""
        self.before_landing = _nobody  # it may hold this core: what is in a circle is not freed when the program ends
        self._stepping.close()
        file, self.trace_file = self.trace_file, None
        if file is not None:
            file.close()
        desk, self._desk = self._desk, None
        if desk is not None:
            orders = self._scheduler.last_transfer_orders(self._clock())
            if orders is not None:
                desk.obey(orders)
            desk.close()
        if self._grammars is not None:
            self._grammars.close()
        self._executor.close()
        self._recorder.close()
        if self._publisher is not None:
            self._publisher.close()


def _live(scheduler: Scheduler) -> list[ChoiceLedger]:
    return [_look_at(scheduler, request_id, None) for request_id in scheduler.live_ids()]


def _look_at(scheduler: Scheduler, request_id: str, now_s: float | None) -> ChoiceLedger:
    request = scheduler.live(request_id)
    if request is None:
        raise RuntimeError(f"{request_id} is in the ledgers as live, and is not")
    return ChoiceLedger(request_id=request_id, state=request.status.name.lower(), stats=request.ledger(now_s))


def _nobody(_: StepPlan) -> None:
    """Nobody wants to know of a step."""
