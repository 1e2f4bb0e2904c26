"""The persistent batch: what the runner keeps of each live request between steps, and how a plan becomes arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo import _native
from octavo.execution.protocols import Int32, StepBatch
from octavo.kv.spec import KVLayout
from octavo.scheduling.plan import NewRequestData, StepPlan


@dataclass(frozen=True)
class PreparedStep:
    """A plan, or a part of it, as arrays, and the requests of it that yield a token: one per logit row, in order."""

    batch: StepBatch
    sampling: Int32
    """[R] sequences of the batch."""
    sampling_slots: Int32
    """[R]"""


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
        self.scored_slots: dict[int, int] = {}
        """Slot of each request that wants prompt logprobs -> how many per position."""
        self._samples = np.ones(max_num_seqs, np.bool_)
        """Whether the request in a slot yields tokens; of pooled ones no logits are wanted."""
        self.num_prompt_tokens = np.zeros(max_num_seqs, np.int32)
        self.num_tokens = np.zeros(max_num_seqs, np.int32)
        self._tokens = np.zeros((max_num_seqs, max_model_len + 1), np.int32)
        self._block_tables = np.zeros((num_groups, max_num_seqs, max_blocks), np.int32)
        self._num_blocks = np.zeros((num_groups, max_num_seqs), np.int32)
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))
        self._table = _native.SlotTable(self._tokens, self.num_tokens, self._block_tables, layout.block_size)

    def add(self, request: NewRequestData) -> int:
        """Takes in a new or resumed request; returns its slot."""
        slot = self._free_slots.pop()
        self.slot_by_id[request.request_id] = slot
        if request.params.prompt_logprobs is not None:
            self.scored_slots[slot] = request.params.prompt_logprobs
        self._samples[slot] = request.pooling is None
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
            self.scored_slots.pop(slot, None)
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
        """Points one entry of a block table at a block of equal content, or at the null block."""
        self._block_tables[group, slot, position] = block_id

    def append_tokens(self, slots: Int32, token_ids: Int32) -> None:
        """Records one sampled token per slot as known, but for negative ones: those rows failed."""
        self._table.append(slots, token_ids)

    def take_back(self, slots: Int32, num_tokens: Int32) -> None:
        """Forgets the tokens of each slot behind the first so many, which were known before `append_tokens`."""
        self.num_tokens[slots] = num_tokens

    def tokens(self, slot: int, start: int, stop: int) -> Int32:
        """Known tokens of a slot at positions `start .. stop - 1`."""
        return self._tokens[slot, start:stop]

    def prepare(self, plan: StepPlan, places: Sequence[int], slots: Sequence[int]) -> PreparedStep:
        """Turns a plan, or the part of it that stands at some places, into arrays in one native call; `logit_rows` are
        the last rows of the requests that yield a token.

        Args:
            places: ascending.
            slots: of the requests at these places.
        """
        scheduled: Sequence[int] = plan.num_scheduled_tokens
        computed: Sequence[int] = plan.num_computed_tokens
        if len(places) < len(scheduled):
            scheduled, computed = [scheduled[place] for place in places], [computed[place] for place in places]
        (token_ids, positions, seq_starts, context_lens, block_tables, slot_mapping, logit_rows, sampling, owners) = (
            self._table.assemble(slots, scheduled, computed)
        )
        samples = self._samples[owners]
        if not samples.all():
            logit_rows, sampling, owners = logit_rows[samples], sampling[samples], owners[samples]
        batch = StepBatch(
            token_ids=token_ids,
            positions=positions,
            seq_starts=seq_starts,
            context_lens=context_lens,
            block_tables=block_tables,
            slot_mapping=slot_mapping,
            logit_rows=logit_rows,
            block_copies=plan.block_copies,
        )
        return PreparedStep(batch, sampling, owners)
