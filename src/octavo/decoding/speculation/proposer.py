"""The contract of proposers: drafts by slot, with what they are worth.

The runner asks through `octavo.execution.protocols.Proposer`, which `tokens_only.TokensOnly` implements over this one.
Here drafts come with what is expected of them, so that a chain can choose.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple, Protocol

from octavo.request.params import SamplingParams


class DraftedRequest(Protocol):
    """What a proposer is told of a request; the runner's record of it (`NewRequestData`) is one."""

    @property
    def token_ids(self) -> list[int]:
        """All known tokens: prompt, then (after preemption) outputs."""
        ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def params(self) -> SamplingParams: ...

    @property
    def tenant(self) -> str:
        """Whose it is. No guess for one tenant is made of another's text: how fast an answer comes would tell what
        that says."""
        ...

    @property
    def cache_salt(self) -> str | None:
        """Within a tenant, only requests of equal salt are guessed from each other's texts."""
        ...


class Draft(NamedTuple):
    """A guess of what comes next in one request."""

    token_ids: Sequence[int]
    """In order; may be empty."""
    chances: Sequence[float]
    """[as many] of each to be right, if all before it are. Estimates: no token depends on them."""

    @property
    def expected(self) -> float:
        """How many of them are likely to be right, counted from the first on until one is not."""
        return sum(self._products(), 0.0)

    def likely(self, least_chance: float) -> Sequence[int]:
        """The tokens up to the first that is less likely to be right, with all before it."""
        for place, chance in enumerate(self._products()):
            if chance < least_chance:
                return self.token_ids[:place]
        return self.token_ids

    def _products(self) -> Iterable[float]:
        return accumulate(self.chances, mul)


NO_DRAFT = Draft((), ())


class Proposer(Protocol):
    """Guesses what comes next in the requests of some slots.

    A guess saves or costs time and never changes a token. It should still be reproducible: what is proposed depends on
    the calls before and on nothing else, no clock and no random source. All calls come from one thread, between steps;
    none may hold Python's lock for long.

    Tokens are told when they are certain: a draft that was wrong has never been part of the text, so nothing is ever
    taken back. Models that guess need more than tokens, and are the runner's proposers themselves.
    """

    def add(self, slot: int, request: DraftedRequest) -> None:
        """A request is new in a free slot, or has come back after a preemption with all its tokens so far."""
        ...

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """Tokens that have been drawn in a slot, behind those known before."""
        ...

    def remove(self, slot: int) -> None:
        """Forgets the request in a slot: it ended or was preempted."""
        ...

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """Drafts for some slots, one each, in order.

        Asking changes nothing that a later answer depends on. A step that fails is run again, in parts: the same slot
        may be asked twice for the same place.

        Args:
            slots: distinct, each of them added.
            max_tokens: >= 1 each; the most that its draft may hold.
        """
        ...
