"""The most frequent continuation of the longest context that stood before in the same request."""

from collections.abc import Sequence

from octavo import _native
from octavo.decoding.speculation.proposer import Draft, DraftedRequest

MIN_CHANCE = 0.1
"""Where the product of a draft's chances falls below, it ends."""


class SuffixProposer:
    """A `Proposer`: a suffix automaton over prompt + output of each request. It knows how often what followed a
    context, so it drafts long where the text repeats and little where it does not."""

    def __init__(self, min_chance: float = MIN_CHANCE) -> None:
        """Raises ValueError unless 0 <= min_chance < 1."""
        self._min_chance = valid_chance(min_chance)
        self._automaton_by_slot: dict[int, _native.SuffixAutomaton] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of all slots."""
        return sum(automaton.num_bytes for automaton in self._automaton_by_slot.values())

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        automaton = self._automaton_by_slot[slot] = _native.SuffixAutomaton()
        automaton.extend(request.token_ids)

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`."""
        self._automaton_by_slot[slot].extend(token_ids)

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        del self._automaton_by_slot[slot]

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """See `Proposer`."""
        return [self._draft(slot, most) for slot, most in zip(slots, max_tokens, strict=True)]

    def _draft(self, slot: int, most: int) -> Draft:
        token_ids, chances, _ = self._automaton_by_slot[slot].draft(most, self._min_chance)
        return Draft(token_ids, chances)


def valid_chance(min_chance: float) -> float:
    """The value itself. Raises ValueError unless it is in [0, 1)."""
    if not 0 <= min_chance < 1:
        raise ValueError(f"min_chance={min_chance} must be in [0, 1)")
    return min_chance
