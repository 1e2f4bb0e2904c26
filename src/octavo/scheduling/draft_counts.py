"""How many drafts are worth trying: whom the scheduler asks when it plans a step."""

from typing import Protocol


class DraftCounts(Protocol):
    """Decides how many drafts a request gets, from what came of earlier ones. Pure: no clock, no chance.

    Whatever it says, drafts take only what is left: of the token budget, of the request's length, of the free blocks.
    """

    most_per_step: int
    """Most drafts of a step, over all requests; rows of logits are kept for so many."""

    def open_step(self, num_tokens: int, num_requests: int) -> int:
        """A step is planned but for its drafts; most drafts that it may have, over all requests."""
        ...

    def wanted(self, request_id: str) -> int:
        """Most drafts for a request in that step; 0: none."""
        ...

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """What came of drafts of a request: how many were planned, ran, and were right."""
        ...

    def measured(self, num_tokens: int, num_requests: int, execute_s: float) -> None:
        """How long a step took that ran so many tokens, drafts included."""
        ...

    def forget(self, request_id: str) -> None:
        """A request has ended; no-op for one that had no drafts."""
        ...


class NoDrafts:
    """`DraftCounts` of an engine that does not speculate."""

    most_per_step = 0

    def open_step(self, num_tokens: int, num_requests: int) -> int:
        """See `DraftCounts`."""
        return 0

    def wanted(self, request_id: str) -> int:
        """See `DraftCounts`."""
        return 0

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """See `DraftCounts`. There were none."""

    def measured(self, num_tokens: int, num_requests: int, execute_s: float) -> None:
        """See `DraftCounts`. Nothing hangs on it."""

    def forget(self, request_id: str) -> None:
        """See `DraftCounts`. There is nothing to forget."""


class FixedDraftCounts(NoDrafts):
    """The same number of drafts for everybody, always."""

    def __init__(self, num_drafts: int, most_per_step: int) -> None:
        self._num_drafts = num_drafts
        self.most_per_step = most_per_step

    def open_step(self, num_tokens: int, num_requests: int) -> int:
        """See `DraftCounts`."""
        return self.most_per_step

    def wanted(self, request_id: str) -> int:
        """See `DraftCounts`."""
        return self._num_drafts
