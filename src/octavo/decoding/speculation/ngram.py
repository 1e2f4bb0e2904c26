"""Prompt lookup: what followed the last tokens when they stood before."""

from collections.abc import Sequence
from math import sqrt

from octavo import _native
from octavo.decoding.speculation.proposer import NO_DRAFT, Draft, DraftedRequest

MIN_N, MAX_N = 2, 5


class NgramProposer:
    """A `Proposer`: behind the most recent earlier place of the longest n-gram that ends prompt + output, n within
    [min_n, max_n]. It drafts as many tokens as it may, or none."""

    def __init__(self, min_n: int = MIN_N, max_n: int = MAX_N) -> None:
        """Raises ValueError unless 1 <= min_n <= max_n <= 32."""
        _native.NgramIndex(min_n, max_n)
        self._sizes = (min_n, max_n)
        self._index_by_slot: dict[int, _native.NgramIndex] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of all slots."""
        return sum(index.num_bytes for index in self._index_by_slot.values())

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        index = self._index_by_slot[slot] = _native.NgramIndex(*self._sizes)
        index.extend(request.token_ids)

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`."""
        self._index_by_slot[slot].extend(token_ids)

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        del self._index_by_slot[slot]

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """See `Proposer`."""
        return [self._draft(slot, most) for slot, most in zip(slots, max_tokens, strict=True)]

    def _draft(self, slot: int, most: int) -> Draft:
        token_ids, match = self._index_by_slot[slot].draft(most)
        return Draft(token_ids, [chance_behind(match + i) for i in range(len(token_ids))]) if token_ids else NO_DRAFT


def chance_behind(length: int) -> float:
    """Of what once followed a context of so many tokens to follow it again; the estimate of csrc/speculation."""
    return 1 / (1 + 2.5 / (length * sqrt(length)))
