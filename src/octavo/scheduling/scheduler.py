"""The scheduler: who runs in the next step, and how many tokens.

There is no prefill phase and no decode phase. A request has n known tokens of which c are computed, and each step
moves c towards n by some number of tokens; a request whose c reaches n yields a token. Chunked prefill, mixed batches
and resumption after preemption are all values of that number.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat

from octavo.config import SchedulerConfig
from octavo.errors import InvalidRequestError
from octavo.kv.manager import KVManager
from octavo.kv.request_blocks import BlockIds
from octavo.request.control import EngineLoad
from octavo.request.outputs import FinishReason, LogprobRow, RequestOutput
from octavo.request.request import GenerateRequest
from octavo.scheduling.admission import Admission, refuse_what_never_fits
from octavo.scheduling.answers import failure, take_tokens
from octavo.scheduling.counters import SchedulerCounters
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.policy import SchedulingPolicy, policy_named
from octavo.scheduling.prefix_hits import PrefixHits
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.running import RunningSet
from octavo.scheduling.starter import Starter
from octavo.scheduling.step_draft import StepDraft
from octavo.scheduling.tenants import Tenants

RUNNING = RequestStatus.RUNNING


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
        policy = policy or policy_named(config)
        self._admission = Admission(config, manager)
        self._tenants = Tenants(config)
        hits = PrefixHits(manager) if policy.follows_hits else None
        self._waiting = WaitingQueue(policy, config.max_num_queued_reqs, self._tenants, hits)
        self._running = RunningSet(
            config, policy, manager, self._waiting, self._tenants, self._admission, self.counters
        )
        self._starter = Starter(config, policy, manager, self._waiting, self._running, self._tenants, self._admission)
        self._requests: dict[str, SchedulerRequest] = {}
        self._num_arrived = 0
        self._in_flight: StepDraft | None = None
        self._no_blocks: BlockIds = ((),) * len(manager.layout.groups)
        self._finished_ids: list[str] = []

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
        self._take_prompt_logprobs(result.prompt_logprobs)
        logprobs: Iterable[Sequence[LogprobRow] | None] = result.logprobs or repeat(None, len(draft.shares))
        for request, token_ids, rows in zip(draft.shares, result.token_ids, logprobs, strict=True):
            if request.status is RUNNING:
                output = self._advance(request, token_ids, rows, now_s)
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
        limit, size = self._chunk_limit(), self._manager.layout.block_size
        allocate, no_blocks = self._manager.allocate, self._no_blocks
        for request in list(self._running):
            most = min(limit, draft.budget)
            if most == 0:
                return
            if request.status is not RUNNING:
                continue  # It fell to make room for one before it.
            start = request.num_computed
            end = min(len(request.token_ids), start + most)
            new_block_ids: BlockIds | None = no_blocks
            if start % size == 0 or start // size != end // size:  # else it stays within a block that it has
                new_block_ids = allocate(request.blocks, end)
            if new_block_ids is None:
                new_block_ids = self._make_room(request, end, draft)
            if new_block_ids is not None:
                draft.add(request, end - start, new_block_ids)

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
            victim = self._running.pick_victim(list(self._running))
            self._running.preempt(victim, draft)
            draft.has_preempted = True
            if victim is request:
                return None
            new_block_ids = self._manager.allocate(request.blocks, num_tokens)
        return new_block_ids

    def _admit_waiting(self, draft: StepDraft, now_s: float) -> None:
        """Nobody is admitted in a step that ran out of blocks: those just freed are for those who were short of
        them."""
        if self._waiting and not draft.has_preempted:
            self._starter.admit_waiting(draft, self._chunk_limit(), now_s)

    def _build_plan(self, draft: StepDraft) -> StepPlan | None:
        """Freezes the draft; c advances now, before the step has run."""
        if not draft.shares:
            if self.has_work:
                raise RuntimeError("there is work, but no request could be given a token: this would never end")
            return None
        plan = draft.to_plan(self.counters.steps, self._running.take_preempted_ids(), self._finished_ids)
        for request, (_, num_tokens, _) in draft.shares.items():
            self.counters.recomputed_tokens += request.run(num_tokens)
        self.counters.computed_tokens += plan.num_tokens
        self.counters.steps += 1
        if self._tenants.weighs:
            for request, (_, num_tokens, _) in draft.shares.items():
                self._tenants.charge(request.request.tenant, num_tokens)
        self._finished_ids = []
        self._in_flight = draft
        return plan

    # ---- taking in results

    def _land(self, plan: StepPlan, result: StepResult) -> StepDraft:
        """Ends the flight of a step."""
        draft = self._in_flight
        if draft is None or not plan.step == result.step == self.counters.steps - 1:
            raise RuntimeError(
                f"update() got plan {plan.step} and result {result.step}; "
                f"{'no step' if draft is None else f'step {self.counters.steps - 1}'} is in flight"
            )
        self._in_flight = None
        return draft

    def _end_failed(self, draft: StepDraft, errors: dict[str, str], now_s: float) -> list[RequestOutput]:
        """Ends requests whose part of the step failed, and starts those anew that read what these have written."""
        if not errors:
            return []
        failed = [request for request in draft.shares if request.request_id in errors]
        if len(failed) < len(errors):
            raise RuntimeError(f"the step result reports errors of requests that were not in the step: {errors}")
        touched = set(self._manager.revoke([request.blocks for request in failed]))
        for request in list(self._running):
            if request.blocks in touched:
                self._running.send_back(request)
        return [
            self._fail(request, errors[request.request_id], now_s) for request in failed if request.status is RUNNING
        ]

    def _fail(self, request: SchedulerRequest, problem: str, now_s: float) -> RequestOutput:
        self._finish(request, FinishReason.ERROR, now_s)
        return failure(request, problem)

    def _take_prompt_logprobs(self, rows_by_id: dict[str, list[LogprobRow]]) -> None:
        for request_id, rows in rows_by_id.items():
            request = self._requests.get(request_id)
            if request is not None and request.status is RUNNING:
                request.add_prompt_logprobs(rows)

    def _advance(
        self, request: SchedulerRequest, token_ids: tuple[int, ...], rows: Sequence[LogprobRow] | None, now_s: float
    ) -> RequestOutput | None:
        """Takes in one request's part of a step; None while its prompt is unfinished."""
        self._manager.settle(request.blocks, request.num_computed)
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
            self._running.leave(request)
            self._finished_ids.append(request.request_id)
        self._manager.free(request.blocks)
        request.finish(reason, now_s)
        del self._requests[request.request_id]
        self._tenants.ended(request.request.tenant)
        self.counters.finished[reason] += 1
