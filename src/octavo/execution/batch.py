"""The persistent batch: what the runner keeps of each live request between steps, and how a plan becomes arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from octavo import _native
from octavo.execution.protocols import Int32, SlotArrays, StepBatch
from octavo.kv.spec import KVLayout
from octavo.scheduling.plan import NewRequestData, StepPlan

Drafts = Mapping[int, Sequence[int]]
"""Place in the plan -> the tokens that are tried behind the known ones of the request there."""


@dataclass(frozen=True)
class PreparedStep:
    """A plan, or a part of it, as arrays, and the requests of it that yield tokens: one per logit row, in order. Those
    with drafts have a run of rows."""

    batch: StepBatch
    sampling: Int32
    """[R] sequences of the batch."""
    sampling_slots: Int32
    """[R]"""
    drafts: Int32 | None = None
    """[R] the draft that follows the token of a row, -1: none; None: nobody has any."""

    def first_rows(self) -> Int32:
        """[slots that yield tokens] the first logit row of each."""
        return np.unique(self.sampling_slots, return_index=True)[1].astype(np.int32)


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
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))
        self._table = _native.SlotTable(self._tokens, self.num_tokens, self._block_tables, layout.block_size)
        self.held = SlotArrays(
            _read_only(self._tokens), _read_only(self.num_tokens), _read_only(self._block_tables), layout.block_size
        )
        """For whoever reads along."""

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
        self.append_blocks(slot, request.block_ids, 0)
        return slot

    def remove(self, request_id: str) -> int | None:
        """Gives a request's slot back; None if it never reached this batch."""
        slot = self.slot_by_id.pop(request_id, None)
        if slot is not None:
            self.scored_slots.pop(slot, None)
            self._free_slots.append(slot)
        return slot

    def append_blocks(self, slot: int, block_ids: tuple[tuple[int, ...], ...], num_computed: int) -> None:
        """Extends the block table of each group by the ids given for it, behind the blocks of the first `num_computed`
        tokens. Entries beyond these were for drafts that have come to nothing, and their blocks are others' by now."""
        start = -(-num_computed // self.layout.block_size)
        for group, ids in enumerate(block_ids):
            if ids:
                self._block_tables[group, slot, start : start + len(ids)] = ids

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

    def prepare(
        self, plan: StepPlan, places: Sequence[int], slots: Sequence[int], drafts: Drafts | None = None
    ) -> PreparedStep:
        """Turns a plan, or the part of it that stands at some places, into arrays in one native call; `logit_rows` are
        the rows of the last known tokens of the requests that yield one, and of their drafts.

        Args:
            places: ascending.
            slots: of the requests at these places.
            drafts: place -> what runs behind its known tokens, at most as much as was planned. None: nothing was
                planned so far.
        """
        scheduled: Sequence[int] = plan.num_scheduled_tokens
        computed: Sequence[int] = plan.num_computed_tokens
        if drafts is not None and plan.num_draft_tokens:
            scheduled = [count - most for count, most in zip(scheduled, plan.num_draft_tokens, strict=True)]
        if len(places) < len(scheduled):
            scheduled, computed = [scheduled[place] for place in places], [computed[place] for place in places]
        listed = None if drafts is None else [drafts.get(place, ()) for place in places]
        (
            token_ids,
            positions,
            seq_starts,
            context_lens,
            block_tables,
            slot_mapping,
            logit_rows,
            sampling,
            owners,
            followers,
        ) = self._table.assemble(slots, scheduled, computed, listed)
        samples = self._samples[owners]
        if not samples.all():
            logit_rows, sampling, owners, followers = (
                column[samples] for column in (logit_rows, sampling, owners, followers)
            )
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
        return PreparedStep(batch, sampling, owners, followers if drafts else None)


def _read_only(array: Int32) -> Int32:
    view = array.view()
    view.flags.writeable = False
    return view
