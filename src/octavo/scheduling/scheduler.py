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
from octavo.scheduling.admission import has_room, refuse_what_never_fits, watermark_blocks
from octavo.scheduling.counters import SchedulerCounters
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.policy import policy_named
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.step_draft import StepDraft

RUNNING = RequestStatus.RUNNING


class Scheduler:
    """Turns requests into step plans and step results into outputs. Pure: the clock is an argument.

    Strictly alternating: `schedule` -> (plan is executed) -> `update`; `add` and `abort` at any time. A request is in
    at most one of the waiting queue and the running set, which keeps the order of admission.
    """

    def __init__(self, config: SchedulerConfig, manager: KVManager, max_model_len: int) -> None:
        """
        Args:
            manager: the KV memory; from here on only this scheduler calls its mutating methods.
            max_model_len: longest prompt + output, in tokens.

        Raises:
            ConfigError: no policy has the configured name.
        """
        self.counters = SchedulerCounters()
        self._config = config
        self._manager = manager
        self._max_model_len = max_model_len
        self._policy = policy_named(config.scheduling_policy)
        self._watermark = watermark_blocks(config.watermark, manager)
        self._waiting = WaitingQueue(self._policy.sort_key, config.max_num_queued_reqs)
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
        token_ids = list(request.prompt_token_ids)
        reads_cache = request.params.prompt_logprobs is None
        blocks = self._manager.open(token_ids, cache_salt=request.cache_salt, reads_cache=reads_cache)
        state = SchedulerRequest(
            request,
            token_ids,
            blocks,
            arrival_index=self._num_arrived,
            arrival_s=request.arrival_s or now_s,
            max_model_len=self._max_model_len,
        )
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
            victim = self._policy.choose_victim(self._running.values())
            self._preempt(victim, draft)
            if victim is request:
                return None
            new_block_ids = self._manager.allocate(request.blocks, num_tokens)
        return new_block_ids

    def _preempt(self, victim: SchedulerRequest, draft: StepDraft) -> None:
        if draft.withdraw(victim):
            self._manager.withdraw(victim.blocks)
        draft.has_preempted = True
        self._send_back(victim)

    def _send_back(self, request: SchedulerRequest) -> None:
        """From running to waiting, with nothing computed and its tokens kept."""
        del self._running[request.request_id]
        self._manager.free(request.blocks)
        request.preempt()
        self._waiting.put_back(request)
        self._preempted_ids.append(request.request_id)
        self.counters.preemptions += 1

    def _admit_waiting(self, draft: StepDraft, now_s: float) -> None:
        """Admits waiting requests in the policy's order, up to the first that does not fit.

        Nobody is admitted in a step that preempted: the blocks just freed are for those who were short of them.
        """
        if draft.has_preempted:
            return
        limit = self._chunk_limit()
        while self._waiting and draft.budget and len(self._running) < self._config.max_num_seqs:
            request = self._waiting.head()
            if not self._admit(request, limit, draft):
                return
            self._waiting.remove(request)
            self._enter_running(request, draft, now_s)

    def _admit(self, request: SchedulerRequest, limit: int, draft: StepDraft) -> bool:
        """Gives a waiting request its prefix hit, blocks and tokens, if all its known tokens fit."""
        num_known = len(request.token_ids)
        hit = self._manager.match(request.blocks)
        reserve = self._watermark if self._running else 0
        if not has_room(self._manager, hit, num_known, reserve):
            return False
        count = min(num_known - hit.num_tokens, limit, draft.budget)
        self._manager.adopt(request.blocks, hit)
        new_block_ids = self._manager.allocate(request.blocks, hit.num_tokens + count)
        if new_block_ids is None:
            raise RuntimeError(f"blocks for {num_known} tokens were free, but {hit.num_tokens + count} do not fit")
        request.num_computed = hit.num_tokens
        draft.add(request, count, new_block_ids)
        draft.admitted.append(request)
        return True

    def _enter_running(self, request: SchedulerRequest, draft: StepDraft, now_s: float) -> None:
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

    def _build_plan(self, draft: StepDraft) -> StepPlan | None:
        """Freezes the draft; c advances now, before the step has run."""
        if not draft.shares:
            if self.has_work:
                raise RuntimeError("there is work, but no request could be given a token: this would never end")
            return None
        plan = draft.to_plan(self.counters.steps, self._preempted_ids, self._finished_ids)
        for request, share in draft.shares.items():
            request.num_computed += share.num_tokens
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
        return RequestOutput(
            request_id=request.request_id,
            finish_reason=FinishReason.ERROR,
            error=problem,
            stats=request.ledger(),
        )

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
        return self._emit(request, token_ids, rows, now_s)

    def _emit(
        self,
        request: SchedulerRequest,
        token_ids: tuple[int, ...],
        rows: Sequence[LogprobRow] | None,
        now_s: float,
    ) -> RequestOutput:
        """Appends tokens up to the one that ends the request; those behind it are dropped with their logprobs."""
        num_kept = 0
        is_over = False
        while not is_over and num_kept < len(token_ids):
            is_over = request.append(token_ids[num_kept])
            num_kept += 1
        self.counters.generation_tokens += num_kept
        prompt_logprobs = None
        is_first = not request.has_emitted
        if is_first:
            request.has_emitted = True
            request.stats.first_token_s = now_s
            prompt_logprobs = request.take_prompt_logprobs()
        if is_over:
            assert request.finish_reason is not None
            self._finish(request, request.finish_reason, now_s)
        return RequestOutput(
            request_id=request.request_id,
            new_token_ids=list(token_ids[:num_kept]),
            new_logprobs=None if rows is None else list(rows[:num_kept]),
            prompt_logprobs=prompt_logprobs,
            finish_reason=request.finish_reason,
            stop_token_id=request.stop_token_id,
            stats=request.ledger() if is_first or is_over else None,
        )

    def _finish(self, request: SchedulerRequest, reason: FinishReason, now_s: float | None = None) -> None:
        """Takes a request, waiting ones already out of their queue, out of everything."""
        if request.status is RUNNING:
            del self._running[request.request_id]
            self._finished_ids.append(request.request_id)
        self._manager.free(request.blocks)
        request.finish(reason, now_s)
        del self._requests[request.request_id]
        self.counters.finished[reason] += 1
