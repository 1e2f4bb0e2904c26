"""Tokens that the shape of an answer leaves no choice about."""

from collections.abc import Sequence
from typing import Protocol

from octavo.decoding.speculation.proposer import NO_DRAFT, Draft, DraftedRequest

CUT_RIGHT = 0.75
"""What a forced token's chance is, where nothing is known: the text is right, how it is cut into tokens is not."""


class ForcedTokens(Protocol):
    """Who follows the answers through their grammars: the sampler of guided answers."""

    def forced_tokens(self, slot: int) -> Sequence[int]:
        """What must come next in a slot but for how the text is cut into tokens; empty where there is a choice, or no
        grammar."""
        ...


class GrammarProposer:
    """A `Proposer`: what a schema forces is drafted, not computed token by token. It has no state: the sampler's
    matchers stand where the answers do."""

    def __init__(self, forced: ForcedTokens) -> None:
        self._forced = forced

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`. There is nothing to do."""

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`. There is nothing to do."""

    def remove(self, slot: int) -> None:
        """See `Proposer`. There is nothing to do."""

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """See `Proposer`."""
        return [self._draft(slot, most) for slot, most in zip(slots, max_tokens, strict=True)]

    def _draft(self, slot: int, most: int) -> Draft:
        token_ids = self._forced.forced_tokens(slot)[:most]
        return Draft(token_ids, [CUT_RIGHT] * len(token_ids)) if token_ids else NO_DRAFT
