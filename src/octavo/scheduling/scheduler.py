"""The scheduler: who runs in the next step, and how many tokens.

There is no prefill phase and no decode phase. A request has n known tokens of which c are computed, and each step
moves c towards n by some number of tokens; a request whose c reaches n yields a token. Chunked prefill, mixed batches
and resumption after preemption are all values of that number.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat

from octavo.config import SchedulerConfig
from octavo.errors import InvalidRequestError
from octavo.kv.manager import KVManager, PrefixHit
from octavo.kv.request_blocks import BlockIds
from octavo.request.control import EngineLoad
from octavo.request.outputs import FinishReason, LogprobRow, RequestOutput
from octavo.request.request import GenerateRequest
from octavo.scheduling.admission import Admission, refuse_what_never_fits
from octavo.scheduling.answers import failure, take_tokens
from octavo.scheduling.counters import SchedulerCounters
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.policy import SchedulingPolicy, policy_named
from octavo.scheduling.preemption import victim_rule
from octavo.scheduling.prefix_hits import PrefixHits
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.step_draft import StepDraft
from octavo.scheduling.tenants import Tenants

RUNNING = RequestStatus.RUNNING
_MAX_PASSED_PER_STEP = 4
"""Waiting requests that do not fit which a step looks past: each costs a lookup in every step."""


class Scheduler:
    """Turns requests into step plans and step results into outputs. Pure: the clock is an argument.

    Strictly alternating: `schedule` -> (plan is executed) -> `update`; `add` and `abort` at any time. A request is in
    at most one of the waiting queue and the running set, which keeps the order of admission.
    """

    def __init__(
        self, config: SchedulerConfig, manager: KVManager, max_model_len: int, policy: SchedulingPolicy | None = None
    ) -> None:
        """
        Args:
            manager: the KV memory; from here on only this scheduler calls its mutating methods.
            max_model_len: longest prompt + output, in tokens.
            policy: None: the built-in one that the configuration names.

        Raises:
            ConfigError: no policy or rule has the configured name, or a weight cannot be read.
        """
        self.counters = SchedulerCounters()
        self._config = config
        self._manager = manager
        self._max_model_len = max_model_len
        self._policy = policy or policy_named(config)
        self._choose_victim = victim_rule(config.preemption_victim, self._policy.choose_victim)
        self._admission = Admission(config, manager)
        self._tenants = Tenants(config)
        hits = PrefixHits(manager) if self._policy.follows_hits else None
        self._waiting = WaitingQueue(self._policy, config.max_num_queued_reqs, self._tenants, hits)
        self._running: dict[str, SchedulerRequest] = {}
        self._requests: dict[str, SchedulerRequest] = {}
        self._num_arrived = 0
        self._in_flight: StepDraft | None = None
        self._finished_ids: list[str] = []
        self._preempted_ids: list[str] = []

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished. `schedule` returns a plan if and only if this is true."""
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
            InvalidRequestError: it can never run, or its id is that of a live request.
            QueueFullError: too many requests are waiting.
        """
        if request.request_id in self._requests:
            raise InvalidRequestError("request_id", request.request_id, "is the id of a request that is still live")
        refuse_what_never_fits(request, self._max_model_len, self._manager)
        self._waiting.check_room(now_s)
        token_ids = list(request.prompt_token_ids)
        reads_cache = request.params.prompt_logprobs is None
        state = SchedulerRequest(
            request,
            token_ids,
            self._manager.open(token_ids, cache_salt=request.cache_salt, reads_cache=reads_cache),
            arrival_index=self._num_arrived,
            arrival_s=request.arrival_s or now_s,
            arrival_work=self.counters.computed_tokens,
            max_model_len=self._max_model_len,
        )
        self._tenants.arrived(request.tenant)
        self._waiting.add(state)
        self._requests[request.request_id] = state
        self._num_arrived += 1

    def abort(self, request_id: str) -> bool:
        """Ends a request in whatever state it is; its blocks are free at once, and it gives no further output.

        Returns:
            False if no live request has this id.
        """
        request = self._requests.get(request_id)
        if request is None:
            return False
        if request.status is not RUNNING:
            self._waiting.remove(request)
        self._finish(request, FinishReason.ABORT)
        return True

    def schedule(self, now_s: float) -> StepPlan | None:
        """Plans the next step: at least one request with at least one token each, or None without work.

        Raises:
            RuntimeError: the result of the previous plan has not been handed in.
        """
        if self._in_flight is not None:
            raise RuntimeError("schedule() was called before update() of the step in flight")
        draft = StepDraft(self._config.max_num_batched_tokens)
        self._resume_running(draft)
        self._admit_waiting(draft, now_s)
        if not draft.shares:
            self._resume_running(draft)  # with the budget of an eviction that helped nobody
        return self._build_plan(draft)

    def update(self, plan: StepPlan, result: StepResult, now_s: float) -> list[RequestOutput]:
        """Takes in what a step produced.

        Returns:
            One output per request that got a token or ended; none for unfinished prompts and aborted requests.

        Raises:
            RuntimeError: the result does not belong to the step in flight or breaks the contract of `StepResult`.
        """
        draft = self._land(plan, result)
        outputs = self._end_failed(draft, result.errors, now_s)
        logprobs: Iterable[Sequence[LogprobRow] | None] = result.logprobs or repeat(None, len(draft.shares))
        for request, token_ids, rows in zip(draft.shares, result.token_ids, logprobs, strict=True):
            if request.status is RUNNING:
                output = self._advance(request, token_ids, rows, result, now_s)
                if output is not None:
                    outputs.append(output)
        self._manager.commit()
        return outputs

    def load(self) -> EngineLoad:
        """How busy the scheduler is, and its totals."""
        counters = self.counters.as_dict()
        counters["evicted_blocks"] = float(self._manager.num_evicted)
        return EngineLoad(
            num_waiting=len(self._waiting),
            num_running=len(self._running),
            num_free_blocks=self._manager.num_free_blocks,
            num_blocks=self._manager.num_blocks,
            num_cached_blocks=self._manager.num_cached_blocks,
            counters=counters,
        )

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached prefixes; False, and nothing done, while any request holds blocks."""
        return self._manager.reset_prefix_cache()

    # ---- planning

    def _resume_running(self, draft: StepDraft) -> None:
        """Gives running requests their tokens, in order of admission, making room where blocks are short.

        A live request has n <= max_model_len - 1 and c < n here, so each can use a token and none passes the context.
        """
        limit = self._chunk_limit()
        for request in list(self._running.values()):
            if draft.budget == 0:
                return
            if request.status is not RUNNING:
                continue  # It fell to make room for one before it.
            count = min(len(request.token_ids) - request.num_computed, limit, draft.budget)
            new_block_ids = self._manager.allocate(request.blocks, request.num_computed + count)
            if new_block_ids is None:
                new_block_ids = self._make_room(request, request.num_computed + count, draft)
            if new_block_ids is not None:
                draft.add(request, count, new_block_ids)

    def _chunk_limit(self) -> int:
        """Most tokens of one request in a step."""
        threshold = self._config.long_prefill_token_threshold
        if threshold and len(self._running) + len(self._waiting) > 1:
            return threshold
        return self._config.max_num_batched_tokens

    def _make_room(self, request: SchedulerRequest, num_tokens: int, draft: StepDraft) -> BlockIds | None:
        """Preempts victims until the blocks can be allocated; None if the request itself falls.

        When it is the victim the walk goes on behind it (vLLM stops there): the others may fit, and as the last of
        them always does, a plan is never empty.
        """
        new_block_ids: BlockIds | None = None
        while new_block_ids is None:
            victim = self._pick_victim(list(self._running.values()))
            self._preempt(victim, draft)
            draft.has_preempted = True
            if victim is request:
                return None
            new_block_ids = self._manager.allocate(request.blocks, num_tokens)
        return new_block_ids

    def _pick_victim(self, candidates: list[SchedulerRequest]) -> SchedulerRequest:
        """One of the least urgent of these."""
        urgency = self._policy.urgency
        if urgency is not None:
            least = max(map(urgency, candidates))
            candidates = [request for request in candidates if urgency(request) == least]
        return self._choose_victim(candidates, self._manager)

    def _preempt(self, victim: SchedulerRequest, draft: StepDraft) -> None:
        if draft.withdraw(victim):
            self._manager.withdraw(victim.blocks)
        self._send_back(victim)

    def _send_back(self, request: SchedulerRequest) -> None:
        """From running to waiting, with nothing computed and its tokens kept."""
        self._stop_running(request)
        self._manager.free(request.blocks)
        request.preempt()
        self._waiting.add(request)
        self._preempted_ids.append(request.request_id)
        self.counters.preemptions += 1

    def _stop_running(self, request: SchedulerRequest) -> None:
        del self._running[request.request_id]
        self._tenants.stopped(request.request.tenant)
        self._admission.running_changed()

    def _admit_waiting(self, draft: StepDraft, now_s: float) -> None:
        """Admits waiting requests in order, as long as there are places and budget.

        One that does not fit may be overtaken by a bounded number of others; after these, and at once if it was
        preempted, it holds the line. Nobody is admitted in a step that ran out of blocks: those just freed are for
        those who were short of them.
        """
        if draft.has_preempted:
            return
        self._waiting.begin_step()
        limit = self._chunk_limit()
        passed: list[SchedulerRequest] = []
        while draft.budget and self._line_moves(passed):
            request = self._waiting.head()
            if request is None or request in draft.evicted:
                break
            if self._admit(request, limit, draft) or self._admit_by_eviction(request, limit, draft):
                self._enter_running(request, now_s)
                for other in passed:
                    other.num_bypassed += 1
            elif self._has_place() and request.status is not RequestStatus.PREEMPTED:
                self._waiting.set_aside(request)
                passed.append(request)
            else:
                break
        self._waiting.restore()

    def _has_place(self) -> bool:
        return len(self._running) < self._config.max_num_seqs

    def _line_moves(self, passed: list[SchedulerRequest]) -> bool:
        """Whether those that did not fit may be overtaken, also once more."""
        most = self._config.max_bypasses
        return len(passed) <= _MAX_PASSED_PER_STEP and all(request.num_bypassed < most for request in passed)

    def _admit(self, request: SchedulerRequest, limit: int, draft: StepDraft) -> bool:
        """Gives a waiting request its prefix hit, blocks and tokens, if there is a place and room for it.

        The forecast does not hold up who is more urgent than somebody that runs: that one can still yield.
        """
        if not self._has_place():
            return False
        hit = self._manager.match(request.blocks)
        if self._admission.num_missing(request, hit, len(self._running)) > 0:
            return False
        if not self._admission.foresees_room(request, hit, self._running.values()) and not self._yielding_to(
            request, draft
        ):
            return False
        self._start(request, hit, limit, draft)
        return True

    def _start(self, request: SchedulerRequest, hit: PrefixHit, limit: int, draft: StepDraft) -> None:
        count = min(len(request.token_ids) - hit.num_tokens, limit, draft.budget)
        self._manager.adopt(request.blocks, hit)
        new_block_ids = self._manager.allocate(request.blocks, hit.num_tokens + count)
        if new_block_ids is None:
            raise RuntimeError(f"{request.request_id} had room, but blocks for {count} tokens are not free")
        request.num_computed = hit.num_tokens
        draft.add(request, count, new_block_ids)
        draft.admitted.append(request)

    def _admit_by_eviction(self, request: SchedulerRequest, limit: int, draft: StepDraft) -> bool:
        """Preempts less urgent requests until a waiting one can start. Nobody falls if all of them were not enough.

        Only strictly less urgent ones yield, so nobody evicts who evicted it.
        """
        victims = self._yielding_to(request, draft)
        if not victims:
            return False
        hit = self._manager.match(request.blocks)
        num_private = sum(self._manager.num_private_blocks(victim.blocks) for victim in victims)
        if self._admission.num_missing(request, hit, len(self._running)) > num_private:
            return False
        while victims:
            victim = self._pick_victim(victims)
            victims.remove(victim)
            self._preempt(victim, draft)
            draft.evicted.add(victim)
            if self._admit(request, limit, draft):
                return True
        return False  # its hit was on blocks that a victim would have filled in this very step

    def _yielding_to(self, request: SchedulerRequest, draft: StepDraft) -> list[SchedulerRequest]:
        """Running requests that a waiting one may evict now, in admission order: less urgent ones, not just admitted,
        and where shares are fair of the same tenant."""
        urgency = self._policy.urgency
        if urgency is None or not self._config.priority_eviction:
            return []
        own = urgency(request)
        less_urgent = [other for other in self._running.values() if urgency(other) > own]
        return [
            other
            for other in less_urgent
            if other not in draft.admitted
            and self._tenants.may_take_from(request.request.tenant, other.request.tenant)
            and self._manager.is_withdrawable(other.blocks)
        ]

    def _enter_running(self, request: SchedulerRequest, now_s: float) -> None:
        self._waiting.start(request, now_s)
        if request.status is RequestStatus.WAITING:
            request.stats.first_scheduled_s = now_s
            request.stats.num_cached_tokens = request.num_computed
            self.counters.prompt_tokens += request.num_prompt_tokens
            self.counters.prefix_queries += request.num_prompt_tokens if request.blocks.reads_cache else 0
            self.counters.cached_tokens += request.num_computed
            self.counters.copied_tokens += request.blocks.num_copied_tokens
        else:
            self.counters.resumed_cached_tokens += request.num_computed
        request.status = RUNNING
        self._running[request.request_id] = request
        self._tenants.started(request.request.tenant)
        self._admission.running_changed()

    def _build_plan(self, draft: StepDraft) -> StepPlan | None:
        """Freezes the draft; c advances now, before the step has run."""
        if not draft.shares:
            if self.has_work:
                raise RuntimeError("there is work, but no request could be given a token: this would never end")
            return None
        plan = draft.to_plan(self.counters.steps, self._preempted_ids, self._finished_ids)
        for request, share in draft.shares.items():
            request.num_computed += share.num_tokens
        if self._tenants.weighs:
            for request, share in draft.shares.items():
                self._tenants.charge(request.request.tenant, share.num_tokens)
        self._preempted_ids, self._finished_ids = [], []
        self._in_flight = draft
        self.counters.steps += 1
        return plan

    # ---- taking in results

    def _land(self, plan: StepPlan, result: StepResult) -> StepDraft:
        """Ends the flight of a step and books its tokens."""
        draft = self._in_flight
        if draft is None or not plan.step == result.step == self.counters.steps - 1:
            raise RuntimeError(
                f"update() got plan {plan.step} and result {result.step}; "
                f"{'no step' if draft is None else f'step {self.counters.steps - 1}'} is in flight"
            )
        self._in_flight = None
        for request, share in draft.shares.items():
            recomputed = request.count_step(share.num_computed, share.num_tokens)
            self.counters.recomputed_tokens += recomputed
        self.counters.computed_tokens += plan.num_tokens
        return draft

    def _end_failed(self, draft: StepDraft, errors: dict[str, str], now_s: float) -> list[RequestOutput]:
        """Ends requests whose part of the step failed, and starts those anew that read what these have written."""
        if not errors:
            return []
        failed = [request for request in draft.shares if request.request_id in errors]
        if len(failed) < len(errors):
            raise RuntimeError(f"the step result reports errors of requests that were not in the step: {errors}")
        touched = set(self._manager.revoke([request.blocks for request in failed]))
        for request in list(self._running.values()):
            if request.blocks in touched:
                self._send_back(request)
        return [
            self._fail(request, errors[request.request_id], now_s) for request in failed if request.status is RUNNING
        ]

    def _fail(self, request: SchedulerRequest, problem: str, now_s: float) -> RequestOutput:
        self._finish(request, FinishReason.ERROR, now_s)
        return failure(request, problem)

    def _advance(
        self,
        request: SchedulerRequest,
        token_ids: tuple[int, ...],
        rows: Sequence[LogprobRow] | None,
        result: StepResult,
        now_s: float,
    ) -> RequestOutput | None:
        """Takes in one request's part of a step; None while its prompt is unfinished."""
        self._manager.settle(request.blocks, request.num_computed)
        if result.prompt_logprobs and request.request_id in result.prompt_logprobs:
            request.add_prompt_logprobs(result.prompt_logprobs[request.request_id])
        if request.num_computed < len(request.token_ids):
            if token_ids:
                raise RuntimeError(f"the step result holds tokens for {request.request_id}, whose prompt is unfinished")
            return None
        if not token_ids:
            return self._fail(request, "the executor returned neither a token nor an error", now_s)
        output = take_tokens(request, token_ids, rows, now_s)
        self.counters.generation_tokens += len(output.new_token_ids)
        if output.finish_reason is not None:
            self._admission.learn(request)
            self._finish(request, output.finish_reason, now_s)
        return output

    def _finish(self, request: SchedulerRequest, reason: FinishReason, now_s: float | None = None) -> None:
        """Takes a request, waiting ones already out of their queue, out of everything."""
        if request.status is RUNNING:
            self._stop_running(request)
            self._finished_ids.append(request.request_id)
        self._manager.free(request.blocks)
        request.finish(reason, now_s)
        del self._requests[request.request_id]
        self._tenants.ended(request.request.tenant)
        self.counters.finished[reason] += 1
