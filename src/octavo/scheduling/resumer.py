"""Gives running requests their tokens of a step, and makes room where blocks are short."""

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager
from octavo.kv.request_blocks import BlockIds
from octavo.scheduling.kv_loads import KVLoads
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.running import RunningSet
from octavo.scheduling.step_draft import StepDraft

RUNNING = RequestStatus.RUNNING


class Resumer:
    """Has running requests go on in the step under planning."""

    def __init__(
        self,
        config: SchedulerConfig,
        manager: KVManager,
        waiting: WaitingQueue,
        running: RunningSet,
        loads: KVLoads | None,
    ) -> None:
        """
        Args:
            loads: who waits for KV; None: there are no tiers to load from.
        """
        self._config = config
        self._manager = manager
        self._waiting = waiting
        self._running = running
        self._loads = loads
        self.no_blocks: BlockIds = ((),) * len(manager.layout.groups)
        """What a share has that needs no new block."""

    def resume_running(self, draft: StepDraft) -> None:
        """Gives running requests their tokens, in order of admission, making room where blocks are short.

        Tokens that steps in flight yield count as known. A live request has n <= max_model_len - 1 and c < n here, so
        each can use a token and none passes the context; but for one whose last token is in flight, which is done.
        """
        limit, size = self.chunk_limit, self._manager.layout.block_size
        allocate, no_blocks = self._manager.allocate, self.no_blocks
        for request in list(self._running):
            most = min(limit, draft.budget)
            if most == 0:
                return
            if request.status is not RUNNING:
                continue  # It fell to make room for one before it.
            num_known = len(request.token_ids) + request.num_pending
            if num_known == request.max_total_tokens:
                continue
            start = request.num_computed
            end = min(num_known, start + most)
            new_block_ids: BlockIds | None = no_blocks
            if start % size == 0 or start // size != end // size:  # else it stays within a block that it has
                new_block_ids = allocate(request.blocks, end)
            if new_block_ids is None:
                new_block_ids = self._make_room(request, end, draft)
            if new_block_ids is not None:
                draft.add(request, end - start, new_block_ids)

    @property
    def chunk_limit(self) -> int:
        """Most tokens of one request in a step."""
        threshold = self._config.long_prefill_token_threshold
        if threshold and len(self._running) + len(self._waiting) > 1:
            return threshold
        return self._config.max_num_batched_tokens

    def _make_room(self, request: SchedulerRequest, num_tokens: int, draft: StepDraft) -> BlockIds | None:
        """Cancels loads, then preempts victims until the blocks can be allocated; None if the request itself falls, or
        sits this step out because nobody may be preempted yet.

        When it is the victim the walk goes on behind it (vLLM stops there): the others may fit, and as the last of
        them always does, a plan is never empty.
        """
        draft.is_short = True
        new_block_ids: BlockIds | None = None
        while new_block_ids is None and self._loads is not None and self._loads.give_way():
            new_block_ids = self._manager.allocate(request.blocks, num_tokens)
        if new_block_ids is None and not draft.may_preempt:
            draft.must_land = True
            return None
        while new_block_ids is None:
            victim = self._running.pick_victim(list(self._running))
            self._running.preempt(victim, draft)
            if victim is request:
                return None
            new_block_ids = self._manager.allocate(request.blocks, num_tokens)
        return new_block_ids
