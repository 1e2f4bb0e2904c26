"""A proposer as the runner asks it."""

from collections.abc import Sequence

from octavo.decoding.speculation.proposer import DraftedRequest, Proposer


class OneByOne:
    """An `octavo.execution.protocols.Proposer` over one of this room: slot after slot, and tokens only."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        self._proposer.add(slot, request)

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`."""
        self._proposer.extend(slot, token_ids)

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        self._proposer.remove(slot)

    def propose(self, slot: int, max_tokens: int) -> Sequence[int]:
        """At most `max_tokens` tokens that may come next in a slot."""
        (draft,) = self._proposer.propose((slot,), (max_tokens,))
        return draft.token_ids
