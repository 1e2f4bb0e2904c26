"""How many drafts are worth trying: whom the scheduler asks when it plans a step."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Candidate = tuple[str, int]
"""A request that may have drafts in a step, and most that it may have (>= 1)."""


class PlannedDrafts(NamedTuple):
    """Drafts of a step."""

    counts: Sequence[int]
    """Most for each candidate."""
    least_chance: float
    """Of a draft to be right, with all before it; what is less likely is not to be run."""


class DraftCounts(Protocol):
    """Decides how many drafts the requests of a step get, from what came of earlier ones. Pure: no clock, no chance.

    Whatever it says, drafts take only what is left: of the token budget, of a request's length, of the free blocks.
    Nothing it is told can change a token, nor can what it says.
    """

    most_per_step: int
    """Most drafts of a step, over all requests; rows of logits are kept for so many."""

    @property
    def is_curious(self) -> bool:
        """Whether steps without drafts are worth being measured at the time."""
        ...

    def worth_asking(self, num_tokens: int, num_requests: int) -> bool:
        """Whether a draft could pay, if it were right, in a step that has so many tokens without any. If not, nobody
        looks for candidates, which takes longer than to know this."""
        ...

    def plan_step(
        self, num_tokens: int, num_requests: int, budget: int, candidates: Sequence[Candidate]
    ) -> PlannedDrafts:
        """Drafts for each candidate, at most as many as it may have and `budget` in all. Asked once for a step, behind
        `worth_asking`, in the order of plans.

        Args:
            num_tokens: what the step runs without drafts.
            num_requests: of the whole step, candidates or not.
            budget: at most `most_per_step`.
            candidates: in the order of the plan.
        """
        ...

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """What came of a candidate's drafts: how many were planned (>= 1), ran, and were right."""
        ...

    def measured(self, num_tokens: int, num_requests: int, num_drafts: int, seconds: float) -> None:
        """How long a step took that ran so many tokens, drafts among them; in the order of plans, behind what came of
        the drafts of earlier steps."""
        ...

    def forget(self, request_id: str) -> None:
        """A request has ended, whether it had drafts or not."""
        ...


class FixedDraftCounts:
    """The same number of drafts for everybody, always, likely or not, in the order of the plan."""

    def __init__(self, num_drafts: int, most_per_step: int) -> None:
        self._num_drafts = num_drafts
        self.most_per_step = most_per_step
        self.is_curious = False

    def worth_asking(self, num_tokens: int, num_requests: int) -> bool:
        """See `DraftCounts`."""
        return True

    def plan_step(
        self, num_tokens: int, num_requests: int, budget: int, candidates: Sequence[Candidate]
    ) -> PlannedDrafts:
        """See `DraftCounts`."""
        counts = []
        for _, most in candidates:
            counts.append(min(self._num_drafts, most, budget))
            budget -= counts[-1]
        return PlannedDrafts(counts, 0.0)

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """See `DraftCounts`. Nothing hangs on it."""

    def measured(self, num_tokens: int, num_requests: int, num_drafts: int, seconds: float) -> None:
        """See `DraftCounts`. Nothing hangs on it."""

    def forget(self, request_id: str) -> None:
        """See `DraftCounts`. There is nothing to forget."""
