"""The budgets of reasoning of all slots: whose next token is forced."""

from collections.abc import Sequence

import numpy as np

from octavo.decoding.reasoning import ReasoningTracker
from octavo.execution.protocols import Int32
from octavo.request.params import SamplingParams


class ReasoningBudgets:
    """One tracker for each slot whose request has a budget."""

    def __init__(self) -> None:
        self._trackers: dict[int, ReasoningTracker] = {}

    def add(self, slot: int, params: SamplingParams, outputs: Sequence[int]) -> None:
        """Takes a request in, if it has a budget."""
        if params.reasoning is not None and params.reasoning.budget >= 0:
            self._trackers[slot] = ReasoningTracker(params.reasoning, outputs)

    def remove(self, slot: int) -> None:
        """Forgets a slot's request, if it has any here."""
        self._trackers.pop(slot, None)

    def push(self, slots: Int32, token_ids: Int32) -> None:
        """Follows what has been sampled; -1 where a row failed."""
        if not self._trackers:
            return
        for slot, token_id in zip(slots.tolist(), token_ids.tolist(), strict=True):
            tracker = self._trackers.get(slot)
            if tracker is not None and token_id >= 0:
                tracker.push(token_id)

    def forced(self, slots: Int32, drafts: Int32 | None = None) -> Int32 | None:
        """[rows] the token that a row must have, -1 where it is drawn; None: all are.

        Args:
            drafts: see `Sampler.verify`; a row behind some is bound by what it would be if they were right.
        """
        if not self._trackers:
            return None
        forced = np.full(len(slots), -1, np.int32)
        before = [-1] * len(slots) if drafts is None else [-1, *drafts.tolist()[:-1]]
        tracker: ReasoningTracker | None = None
        for row, (slot, draft) in enumerate(zip(slots.tolist(), before, strict=True)):
            if draft < 0:
                tracker = self._trackers.get(slot)
            elif tracker is not None:
                tracker = tracker.behind(draft)
            token_id = None if tracker is None else tracker.forced_token
            if token_id is not None:
                forced[row] = token_id
        return forced
