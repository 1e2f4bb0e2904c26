"""The scheduler: who runs in the next step, and how many tokens.

There is no prefill phase and no decode phase. A request has n known tokens of which c are computed, and each step
moves c towards n by some number of tokens; a request whose c reaches n yields a token. Chunked prefill, mixed batches
and resumption after preemption are all values of that number.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

import msgspec

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError, EngineDrainingError, InvalidRequestError
from octavo.kv.manager import KVManager
from octavo.kv.pins import Pin, Pins
from octavo.kv.tier_book import MAX_BACKLOG
from octavo.kv.tiers import Tiers
from octavo.kv.transfer import TransferEvent, TransferOrders
from octavo.request.account import WaitReason
from octavo.request.control import EngineLoad
from octavo.request.orders import PauseMode
from octavo.request.outputs import FinishReason, LogprobRow, RequestOutput
from octavo.request.ready import ReadyEvent
from octavo.request.request import GenerateRequest
from octavo.request.step_record import QueuedFigures
from octavo.scheduling.admission import Admission, refuse_shapes, refuse_what_never_fits
from octavo.scheduling.answers import blamed, failure, refusal, take_tokens, take_vector
from octavo.scheduling.counters import SchedulerCounters
from octavo.scheduling.draft_counts import DraftCounts
from octavo.scheduling.drafts import DraftPlanner
from octavo.scheduling.grammar_waits import GrammarOrders, GrammarWaits
from octavo.scheduling.kv_loads import KVLoads
from octavo.scheduling.pause import Pause
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.policy import SchedulingPolicy, policy_named
from octavo.scheduling.policy_guard import PolicyGuard
from octavo.scheduling.prefix_hits import PrefixHits
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_book import RequestBook, reaches_of
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.resumer import Resumer
from octavo.scheduling.running import RunningSet
from octavo.scheduling.stalls import Stalls
from octavo.scheduling.starter import Starter
from octavo.scheduling.step_draft import StepDraft
from octavo.scheduling.tenants import Tenants
from octavo.scheduling.wait_book import NoWaitBook, WaitBook

RUNNING = RequestStatus.RUNNING
ENDED_BY_TOKENS = (FinishReason.STOP, FinishReason.REPETITION)
"""Ends that nobody foresees, so that a step may be in flight whose token is not wanted."""


class Scheduler:
    """Turns requests into step plans and step results into outputs. Pure: the clock is an argument.

    `schedule` -> (plan is executed) -> `update`, in the order of the plans; `add` and `abort` at any time. Up to
    `max_in_flight` plans may be made before the first of them has been executed:

        1    schedule 0, update 0, schedule 1, update 1, schedule 2, ...
        2    schedule 0, schedule 1, update 0, schedule 2, update 1, ...        step t + 1 is planned while t runs

    A request is in at most one of the waiting queue and the running set, which keeps the order of admission.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        manager: KVManager,
        max_model_len: int,
        policy: SchedulingPolicy | None = None,
        pins: Pins | None = None,
        tiers: Tiers | None = None,
        *,
        compiles_grammars: bool = False,
        draft_counts: DraftCounts | None = None,
    ) -> None:
        """
        Args:
            manager: the KV memory; from here on only this scheduler calls its mutating methods.
            max_model_len: longest prompt + output, in tokens.
            policy: None: the built-in one that the configuration names.
            pins: the sessions of that memory; None: new ones with a budget of their own.
            tiers: behind the KV memory; from here on only this scheduler calls their mutating methods. None: none.
            compiles_grammars: whether somebody obeys `grammar_orders`; else answers of a given shape are refused.
            draft_counts: how many drafts requests get, if the runner has somebody to propose them. None: none.

        Raises:
            ConfigError: the size of a step is left open, no policy or rule has the configured name, or a weight cannot
                be read.
        """
        for name in ("max_num_batched_tokens", "max_num_seqs"):
            if getattr(config, name) == 0:
                raise ConfigError(name, 0, "the size of a step must be known here; see octavo.engine.step_size")
        self.counters = SchedulerCounters()
        self.pins = Pins(manager, max_model_len) if pins is None else pins
        """Sessions between whose requests prefixes stay. Others may open and end them at any time."""
        self.max_in_flight = 2 if config.async_scheduling else 1
        """Most steps planned and not taken in."""
        self._config = config
        self._manager = manager
        self._max_model_len = max_model_len
        self._guard = PolicyGuard(policy or policy_named(config))
        policy = self._guard.policy()
        self._admission = Admission(config, manager)
        self.pins.on_change = self._admission.blocks_came_back
        self._tenants = Tenants(config)
        hits = PrefixHits(manager) if policy.follows_hits else None
        self._waits = WaitBook(self._tenants) if config.request_ledger else NoWaitBook(self._tenants)
        self._waiting = WaitingQueue(policy, config.max_num_queued_reqs, self._tenants, hits, self._waits)
        self._running = RunningSet(
            config, policy, manager, self._waiting, self._tenants, self._admission, self.counters
        )
        self._tiers = tiers
        self._loads = None if tiers is None else KVLoads(tiers, self._waiting, self._admission)
        self._compiles_grammars = compiles_grammars
        self._grammars = GrammarWaits(self._waiting)
        self._starter = Starter(
            config,
            policy,
            manager,
            self._waiting,
            self._running,
            self._tenants,
            self._admission,
            self._loads,
            self._waits,
        )
        self._resumer = Resumer(config, manager, self._waiting, self._running, self._loads)
        self._stalls = Stalls(self._running)
        self.reaches = reaches_of(manager.layout)
        """What `WorkDone.num_pairs` and `num_read` are about: how far back the layers of the model see."""
        self._drafts = None if draft_counts is None else DraftPlanner(draft_counts, manager)
        self._requests: dict[str, SchedulerRequest] = {}
        self._num_arrived = 0
        self._in_flight: deque[StepDraft] = deque()
        """Planned and not taken in, the oldest first."""
        self._must_land = False
        """Somebody has to be preempted, so the next step is planned when none is in flight."""
        self._finished_ids: list[str] = []
        self._pause = Pause(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished. With no step in flight `schedule` returns a plan if this is true, or else
        some request waits for KV or for a grammar, or all for the end of a pause."""
        return bool(self._requests)

    @property
    def queue_full(self) -> bool:
        """Whether `add` would raise QueueFullError."""
        return self._waiting.full

    def add(self, request: GenerateRequest, now_s: float) -> None:
        """Takes a request into the waiting queue.

        Args:
            now_s: its arrival, where the request itself does not carry one.

        Raises:
            InvalidRequestError: it can never run, or its id is that of a live request; or what of `Pins.arrive`.
            QueueFullError: too many requests are waiting.
            EngineDrainingError: none are taken any more.
            PinBudgetError: as of `Pins.arrive`.
            Exception: the policy's own, at this request; nothing is noted of it.
        """
        if request.request_id in self._requests:
            raise InvalidRequestError("request_id", request.request_id, "is the id of a request that is still live")
        if not self._compiles_grammars:
            refuse_shapes(request)
        refuse_what_never_fits(request, self._max_model_len, self._manager)
        if self.paused is PauseMode.DRAIN:
            raise EngineDrainingError("the engine drains: it takes no new requests")
        self._waiting.check_room(now_s)
        self._waits.now_s = now_s
        token_ids = list(request.prompt_token_ids)
        pooled_whole = request.pooling is not None and request.pooling.needs_every_position
        reads_cache = request.params.prompt_logprobs is None and not pooled_whole
        state = SchedulerRequest(
            request,
            token_ids,
            self._manager.open(
                token_ids, tenant=request.tenant, cache_salt=request.cache_salt, reads_cache=reads_cache
            ),
            arrival_index=self._num_arrived,
            arrival_s=request.arrival_s or now_s,
            arrival_work=self.counters.computed_tokens,
            max_model_len=self._max_model_len,
            book=self._new_book(request, now_s) if self._config.request_ledger else None,
        )
        self._guard.check(state)
        state.pin = self.pins.arrive(request, now_s)
        self._tenants.arrived(request.tenant)
        self._waiting.add(state)
        self._grammars.arrive(state, now_s)
        self._requests[request.request_id] = state
        self._num_arrived += 1

    def _new_book(self, request: GenerateRequest, now_s: float) -> RequestBook:
        arrival_s, samples = request.arrival_s or now_s, request.pooling is None
        return RequestBook(len(request.prompt_token_ids), arrival_s, self.reaches, samples=samples)

    def live(self, request_id: str) -> SchedulerRequest | None:
        """The live request of this id, to be read; None if there is none."""
        return self._requests.get(request_id)

    def live_ids(self) -> list[str]:
        """Ids of all live requests, in the order of arrival."""
        return list(self._requests)

    def abort(self, request_id: str, now_s: float | None = None) -> bool:
        """Ends a request in whatever state it is; its blocks are free at once, and it gives no further output.

        Returns:
            False if no live request has this id.
        """
        request = self._requests.get(request_id)
        if request is None:
            return False
        self._leave_queue(request)
        self._finish(request, FinishReason.ABORT, now_s)
        return True

    def end(self, request_id: str, now_s: float) -> bool:
        """Ends a request like `abort`, but it has ended well: its client has found a stop string in the answer."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        if request.pin is not None:
            self._keep(request, request.pin, now_s)
        self._leave_queue(request)
        if request.num_output_tokens:
            request.count_overrun()
        self._finish(request, FinishReason.STOP, now_s)
        return True

    def _leave_queue(self, request: SchedulerRequest) -> None:
        if request.status is not RUNNING:
            self._waiting.remove(request)
            if self._loads is not None:
                self._loads.forget(request)

    def pause(self, mode: PauseMode, now_s: float | None = None) -> None:
        """See `Pause.begin`."""
        self._waits.now_s = now_s or self._waits.now_s
        self._pause.begin(mode)

    def resume(self, now_s: float | None = None) -> None:
        """Ends a pause; no-op if there is none."""
        self._waits.now_s = now_s or self._waits.now_s
        self._pause.end()

    @property
    def paused(self) -> PauseMode | None:
        """The kind of a pause; None: there is none."""
        return self._pause.mode

    def schedule(self, now_s: float) -> StepPlan | None:
        """Plans the next step: at least one request with at least one token each. None without work, and as long as all
        work waits for the steps in flight, for KV, for grammars, or for the end of a pause.

        Raises:
            RuntimeError: `max_in_flight` steps are in flight.
        """
        if len(self._in_flight) >= self.max_in_flight:
            raise RuntimeError("schedule() was called before update() of the step in flight")
        self._waits.now_s = now_s
        self.pins.expire(now_s)
        if self._loads is not None:
            self._loads.expire(now_s)
        if self.paused is PauseMode.KEEP:
            self._waits.pause()
            self._stalls.pause(now_s)
            return None
        if self._must_land and self._in_flight:
            return None
        budget, may_preempt = self._config.max_num_batched_tokens, not self._in_flight
        draft = StepDraft(self.counters.steps, budget, now_s=now_s, may_preempt=may_preempt)
        self._resumer.resume_running(draft)
        others_wait_for = self._admit_waiting(draft, now_s)
        if not draft.shares:
            self._resumer.resume_running(draft)  # with the budget of an eviction that helped nobody
        self._must_land = draft.must_land
        self._waits.planned(others_wait_for)
        self._stalls.planned(draft)
        if self._drafts is not None:
            self._drafts.plan(draft, may_take_blocks=not (self._waiting or draft.is_short))
        return self._build_plan(draft)

    def update(self, plan: StepPlan, result: StepResult, now_s: float) -> list[RequestOutput]:
        """Takes in what a step produced.

        Returns:
            One output per request that got a token or ended; none for unfinished prompts and for requests that had
            ended before.

        Raises:
            RuntimeError: the result does not belong to the oldest step in flight or breaks the contract of
                `StepResult`.
        """
        draft = self._land(plan, result)
        self._waits.now_s = now_s
        if self._config.request_ledger:
            draft.note_time(result.timings.total_s)
        if self._tiers is not None:
            seconds = result.timings.execute_s + result.timings.draft_s
            self._tiers.prefill_speed.measured(plan.num_known_tokens, len(plan.request_ids), seconds)
        if self._drafts is not None:
            self._drafts.measured(plan, result)
        outputs = self._end_failed(draft, result, now_s)
        self._manager.commit()
        draft.take_prompt_logprobs(result.prompt_logprobs)
        logprobs: Iterable[Sequence[LogprobRow] | None] = result.logprobs or repeat(None, len(draft.shares))
        completed = frozenset(result.completed_request_ids)
        drafted: Iterable[int] = result.num_draft_tokens or repeat(0, len(draft.shares))
        columns = zip(draft.shares.items(), draft.works, result.token_ids, logprobs, drafted, strict=True)
        for (request, share), work, token_ids, rows, num_drafted in columns:
            if num_drafted:
                self.counters.drafts_ran(num_drafted, max(0, len(token_ids) - 1))
            if request.status is RUNNING and request not in draft.void:
                num_computed = share[0] + share[1]
                if num_computed > len(request.token_ids):  # planned behind drafts in flight, some of them wrong
                    num_computed = len(request.token_ids)
                if self._drafts is not None and num_computed + num_drafted != share[0] + share[1] + share[3]:
                    draft.correct(work, request, num_drafted, num_computed + num_drafted)
                if request.request.pooling is None:
                    completes = request.request_id in completed
                    if self._drafts is not None and share[3] and token_ids:
                        self._drafts.landed(request, share[3], num_drafted, len(token_ids) - 1)
                    output = self._advance(request, num_computed, token_ids, rows, now_s, completes=completes)
                    if self._drafts is not None and share[3] and self._drafts.give_back(request) and self._waiting:
                        self._admission.blocks_came_back()
                else:
                    output = self._advance_pooled(request, num_computed, result.vectors, now_s)
                if output is not None:
                    outputs.append(output)
            elif request.finish_reason in ENDED_BY_TOKENS:
                self.counters.discarded_tokens += len(token_ids)
        return outputs + self._end_broken(now_s)

    # ---- grammars

    def take_in_ready(self, events: Iterable[ReadyEvent], now_s: float) -> list[RequestOutput]:
        """Takes in what has come of grammars; at any time between two calls. Returns the ends of requests whose grammar
        cannot be had."""
        outputs = []
        self._waits.now_s = now_s
        for event in events:
            request = self._grammars.take_in(event, now_s)
            if request is not None and event.refusal is not None:
                self._waiting.remove(request)
                self._finish(request, FinishReason.ERROR, now_s)
                outputs.append(refusal(request, event.refusal, now_s))
        return outputs

    def grammar_orders(self) -> GrammarOrders | None:
        """What the executing side is to do about grammars since the last call; None: nothing."""
        return self._grammars.take_orders()

    # ---- tiers

    def take_in(self, events: Iterable[TransferEvent], now_s: float) -> None:
        """Takes in what the stores of the tiers report; at any time between two calls."""
        self._waits.now_s = now_s
        if self._loads is not None:
            self._loads.take_in(events, now_s)

    def transfer_orders(self, now_s: float) -> TransferOrders | None:
        """What the stores are to do before any step runs that was planned since the last call; asked for after each
        `schedule`. None: nothing."""
        if self._tiers is None:
            return None
        self._tiers.plan_stores(now_s)
        return self._tiers.take_orders()

    def last_transfer_orders(self, now_s: float) -> TransferOrders | None:
        """As `transfer_orders`, with all that is still to be stored; before the stores are closed."""
        if self._tiers is None:
            return None
        self._tiers.plan_stores(now_s, MAX_BACKLOG)
        return self._tiers.take_orders()

    def next_lease_end_s(self) -> float | None:
        """When `schedule` will end a transfer or a session, if nothing happens before; None: there is none."""
        ends = (self.pins.deadline_s(), None if self._tiers is None else self._tiers.deadline_s())
        return min((end for end in ends if end is not None), default=None)

    # ---- figures

    def surroundings(self) -> tuple[QueuedFigures, int, int]:
        """Who waits, how many run, and how many blocks are free."""
        return self._waiting.figures, len(self._running), self._manager.num_free_blocks

    def load(self) -> EngineLoad:
        """How busy the scheduler is, and its totals."""
        counters = self.counters.as_dict()
        counters["evicted_blocks"] = float(self._manager.num_evicted)
        if self._tiers is not None:
            counters |= self._tiers.counters()
        return EngineLoad(
            num_waiting=len(self._waiting),
            num_running=len(self._running),
            num_free_blocks=self._manager.num_free_blocks,
            num_blocks=self._manager.num_blocks,
            num_cached_blocks=self._manager.num_cached_blocks,
            num_pinned_blocks=self.pins.num_blocks,
            num_sessions=len(self.pins),
            num_waiting_tokens=self._waiting.num_tokens,
            num_waiting_cached_tokens=self._waiting.num_cached_tokens,
            num_running_tokens=self._running.num_tokens,
            num_tokens_to_run=self._running.num_tokens_to_run,
            counters=counters,
            drafts=self.counters.draft_figures(),
            num_waiting_for_kv=0 if self._loads is None else len(self._loads),
            num_waiting_for_grammar=len(self._grammars),
            tiers=[] if self._tiers is None else self._tiers.figures(),
            paused=self.paused,
            num_to_finish=self._pause.num_to_finish(self._requests.values()),
        )

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached prefixes, those of sessions and of all tiers, too; False, and nothing done, while others
        hold blocks."""
        num_held = self._manager.num_blocks - self._manager.num_free_blocks
        if num_held > self.pins.num_blocks:
            return False
        self.pins.let_go()
        if not self._manager.reset_prefix_cache():
            return False
        if self._tiers is not None:
            self._tiers.clear()
        return True

    # ---- planning

    def _admit_waiting(self, draft: StepDraft, now_s: float) -> WaitReason:
        """Nobody is admitted in a step that ran out of blocks: those just freed are for those who were short of
        them. Returns what those wait for that nobody looks at."""
        if not self._waiting or draft.is_short:
            return WaitReason.BLOCKS
        return self._starter.admit_waiting(draft, self._resumer.chunk_limit, now_s)

    def _build_plan(self, draft: StepDraft) -> StepPlan | None:
        """Freezes the draft; c advances now, before the step has run."""
        if not draft.shares:
            waits = self._in_flight or self._loads or self._grammars or self.paused is not None
            if self.has_work and not waits:
                raise RuntimeError("there is work, but no request could be given a token: this would never end")
            return None
        if len(draft.shares) < len(self._running):
            self.counters.stalls += self._running.num_stalled(draft)
        plan = draft.to_plan(self._running.take_preempted_ids(), self._finished_ids)
        self._book(draft, 1 / plan.num_tokens)
        self.counters.computed_tokens += draft.num_tokens if draft.has_drafts else plan.num_tokens
        self.counters.steps += 1
        if self._tenants.weighs:
            for request, (_, num_tokens, _, _) in draft.shares.items():
                self._tenants.charge(request.request.tenant, num_tokens)
        self._finished_ids = []
        self._in_flight.append(draft)
        self._manager.issue()
        return plan

    def _book(self, draft: StepDraft, part: float) -> None:
        """Notes what a planned step does for each of its requests.

        Args:
            part: one row's of all rows.
        """
        step, works, no_blocks, num_recomputed = draft.step, draft.works, self._resumer.no_blocks, 0
        for request, (_, num_tokens, block_ids, num_drafts) in draft.shares.items():
            num_recomputed += request.run(step, num_tokens, num_drafts, (num_tokens + num_drafts) * part)
            book = request.book
            works.append(book.work)
            if block_ids is not no_blocks:
                book.curve.hold(request.blocks.num_blocks, draft.now_s)
        self.counters.recomputed_tokens += num_recomputed

    # ---- taking in results

    def _land(self, plan: StepPlan, result: StepResult) -> StepDraft:
        """Ends the flight of the oldest step."""
        oldest = self.counters.steps - len(self._in_flight)
        if not self._in_flight or not plan.step == result.step == oldest:
            raise RuntimeError(
                f"update() got plan {plan.step} and result {result.step}; "
                f"{f'step {oldest}' if self._in_flight else 'no step'} is in flight"
            )
        return self._in_flight.popleft()

    def _end_failed(self, draft: StepDraft, result: StepResult, now_s: float) -> list[RequestOutput]:
        """Ends requests whose part of the step failed, and starts those anew that read what these have written: what
        they do in the steps in flight is void. Those of them that failed, too, start anew as well: what is wrong with
        nothing but their own they will show again."""
        errors = result.errors
        if not errors:
            return []
        failed = [request for request in draft.shares if request.request_id in errors]
        if len(failed) < len(errors):
            raise RuntimeError(f"the step result reports errors of requests that were not in the step: {errors}")
        failed = [request for request in failed if request not in draft.void]
        touched = set(self._manager.revoke([request.blocks for request in failed]))
        for request in list(self._running):
            if request.blocks in touched:
                self._running.send_back(request, now_s)
                for later in self._in_flight:
                    later.void.add(request)
        ended = [request for request in failed if request.status is RUNNING]
        outputs = [self._fail(request, errors[request.request_id], now_s) for request in ended]
        return blamed(ended, outputs, result.unfit_request_ids) if result.unfit_request_ids else outputs

    def _end_broken(self, now_s: float) -> list[RequestOutput]:
        """Ends those at whom the policy has raised."""
        outputs = []
        for request, problem in self._guard.take_broken().items():
            if request.status is not RequestStatus.FINISHED:
                self._leave_queue(request)
                outputs.append(self._fail(request, problem, now_s))
        return outputs

    def _fail(self, request: SchedulerRequest, problem: str, now_s: float) -> RequestOutput:
        self._finish(request, FinishReason.ERROR, now_s)
        return failure(request, problem, now_s)

    def _advance(
        self,
        request: SchedulerRequest,
        num_computed: int,
        token_ids: tuple[int, ...],
        rows: Sequence[LogprobRow] | None,
        now_s: float,
        *,
        completes: bool,
    ) -> RequestOutput | None:
        """Takes in a part of a step, behind which `num_computed` tokens are computed; None inside the prompt."""
        self._manager.settle(request.blocks, num_computed)
        if num_computed < len(request.token_ids):
            if token_ids:
                raise RuntimeError(f"the step result holds tokens for {request.request_id}, whose prompt is unfinished")
            return None
        request.num_pending -= 1
        if not token_ids:
            return self._fail(request, "the executor returned neither a token nor an error", now_s)
        output = take_tokens(request, token_ids, rows, now_s, completes=completes)
        if len(token_ids) > 1:
            self.counters.saved_steps += len(output.new_token_ids) - 1
            self._manager.settle(request.blocks, min(request.num_computed, len(request.token_ids) - 1))
        self.counters.generation_tokens += len(output.new_token_ids)
        reason = output.finish_reason
        if reason is not None:
            self.counters.take_forecast(self._admission.learn(request))
            if request.pin is not None:
                self._keep(request, request.pin, now_s)
                output = msgspec.structs.replace(output, stats=request.ledger(now_s))
            self._finish(request, reason, now_s)
        return output

    def _advance_pooled(
        self, request: SchedulerRequest, num_computed: int, vectors: Mapping[str, bytes], now_s: float
    ) -> RequestOutput | None:
        """The same for a pooled request, which ends with its prompt; its vector stands in for a token."""
        self._manager.settle(request.blocks, num_computed)
        vector = vectors.get(request.request_id)
        if num_computed < len(request.token_ids):
            if vector is not None:
                raise RuntimeError(f"the step result holds the vector of {request.request_id}, a prompt unfinished")
            return None
        request.num_pending -= 1
        if vector is None:
            return self._fail(request, "the executor returned neither a vector nor an error", now_s)
        output = take_vector(request, vector, now_s)
        self._finish(request, FinishReason.STOP, now_s)
        return output

    def _keep(self, request: SchedulerRequest, pin: Pin, now_s: float) -> None:
        """Has the session of a request that ends well hold what it leaves."""
        request.stats.pin_problem = self.pins.keep(pin, request.blocks, now_s)
        request.stats.num_pinned_tokens = pin.pinned.num_tokens

    def _finish(self, request: SchedulerRequest, reason: FinishReason, now_s: float | None = None) -> None:
        """Takes a request, waiting ones already out of their queue, out of everything."""
        if request.status is RUNNING:
            self._running.leave(request)
            self._finished_ids.append(request.request_id)
        self._manager.free(request.blocks)
        if request.pin is not None:
            self.pins.leave(request.pin)
        self._grammars.leave(request)
        if self._drafts is not None:
            self._drafts.counts.forget(request.request_id)
        request.finish(reason, now_s)
        del self._requests[request.request_id]
        self._tenants.ended(request.request.tenant)
        self.counters.finished[reason] += 1
