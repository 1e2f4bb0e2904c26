"""The persistent batch: what the runner keeps of each live request between steps, and how a plan becomes arrays."""

import numpy as np

from octavo.execution.protocols import Int32, StepBatch
from octavo.kv.spec import KVLayout
from octavo.request.params import SamplingParams
from octavo.scheduling.plan import NewRequestData, StepPlan


class PersistentBatch:
    """Slots for up to `max_num_seqs` live requests, their token ids and block tables in flat arrays.

    Only the runner writes here. A slot is taken when a request appears in a plan's `new_requests` and given back when
    it is finished or preempted.
    """

    def __init__(self, layout: KVLayout, *, max_num_seqs: int, max_model_len: int) -> None:
        self.layout = layout
        num_groups = len(layout.groups)
        max_blocks = -(-max_model_len // layout.block_size)
        self.slot_by_id: dict[str, int] = {}
        self.params: list[SamplingParams | None] = [None] * max_num_seqs
        self.num_prompt_tokens = np.zeros(max_num_seqs, np.int32)
        self.num_tokens = np.zeros(max_num_seqs, np.int32)
        self._tokens = np.zeros((max_num_seqs, max_model_len + 1), np.int32)
        self._block_tables = np.zeros((num_groups, max_num_seqs, max_blocks), np.int32)
        self._num_blocks = np.zeros((num_groups, max_num_seqs), np.int32)
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))

    def add(self, request: NewRequestData) -> int:
        """Takes in a new or resumed request; returns its slot."""
        slot = self._free_slots.pop()
        self.slot_by_id[request.request_id] = slot
        self.params[slot] = request.params
        count = len(request.token_ids)
        self._tokens[slot, :count] = request.token_ids
        self.num_tokens[slot] = count
        self.num_prompt_tokens[slot] = request.num_prompt_tokens
        self._num_blocks[:, slot] = 0
        self.append_blocks(slot, request.block_ids)
        return slot

    def remove(self, request_id: str) -> int | None:
        """Gives a request's slot back; None if it never reached this batch."""
        slot = self.slot_by_id.pop(request_id, None)
        if slot is not None:
            self.params[slot] = None
            self._free_slots.append(slot)
        return slot

    def append_blocks(self, slot: int, block_ids: tuple[tuple[int, ...], ...]) -> None:
        """Extends the block table of each group by the ids given for it."""
        for group, ids in enumerate(block_ids):
            if ids:
                start = self._num_blocks[group, slot]
                self._block_tables[group, slot, start : start + len(ids)] = ids
                self._num_blocks[group, slot] = start + len(ids)

    def swap_block(self, slot: int, group: int, position: int, block_id: int) -> None:
        """Points one entry of a block table at a block of equal content."""
        self._block_tables[group, slot, position] = block_id

    def append_tokens(self, slots: Int32, token_ids: Int32) -> None:
        """Records one sampled token per slot as known."""
        self._tokens[slots, self.num_tokens[slots]] = token_ids
        self.num_tokens[slots] += 1

    def tokens(self, slot: int, start: int, stop: int) -> Int32:
        """Known tokens of a slot at positions `start .. stop - 1`."""
        return self._tokens[slot, start:stop]

    def prepare(self, plan: StepPlan, slots: Int32) -> StepBatch:
        """Turns a plan into arrays; `logit_rows` are the last rows of the requests that yield a token.

        Work grows with the number of requests only inside NumPy: there is no Python loop over tokens.
        """
        scheduled = np.array(plan.num_scheduled_tokens, np.int32)
        computed = np.array(plan.num_computed_tokens, np.int32)
        context = computed + scheduled
        starts = np.zeros(len(slots) + 1, np.int32)
        np.cumsum(scheduled, out=starts[1:])
        row_sequence = np.repeat(np.arange(len(slots)), scheduled)
        row_slot = slots[row_sequence]
        positions = np.arange(starts[-1], dtype=np.int32) + (computed - starts[:-1])[row_sequence]
        size = self.layout.block_size
        blocks = self._block_tables[:, row_slot, positions // size]
        width = max(1, -(-int(context.max()) // size))
        return StepBatch(
            token_ids=self._tokens[row_slot, positions],
            positions=positions,
            seq_starts=starts,
            context_lens=context,
            block_tables=np.ascontiguousarray(self._block_tables[:, slots, :width]),
            slot_mapping=blocks * size + positions % size,
            logit_rows=(starts[1:] - 1)[context == self.num_tokens[slots]],
            block_copies=plan.block_copies,
        )
