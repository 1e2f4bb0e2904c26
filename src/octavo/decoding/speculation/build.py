"""Proposers by name, as `--speculation` gives them."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo.decoding.speculation.chains import BestDraft
from octavo.decoding.speculation.grammar import ForcedTokens, GrammarProposer
from octavo.decoding.speculation.ngram import MAX_N, MIN_N, NgramProposer
from octavo.decoding.speculation.proposer import Proposer
from octavo.decoding.speculation.shared_texts import MAX_SHARED_TOKENS, SharedSuffixProposer
from octavo.decoding.speculation.suffix import SuffixProposer
from octavo.errors import ConfigError


@dataclass(frozen=True)
class Surroundings:
    """What proposers may draw on."""

    forced: ForcedTokens | None = None
    """None: no answer has a shape."""
    ngram_sizes: tuple[int, int] = (MIN_N, MAX_N)
    """Fewest and most tokens that are looked up."""


def _with_grammar(around: Surroundings, *others: Proposer) -> Proposer:
    own = () if around.forced is None else (GrammarProposer(around.forced),)
    return BestDraft((*own, *others))


PROPOSERS: dict[str, Callable[[Surroundings], Proposer]] = {
    "ngram": lambda around: _with_grammar(around, NgramProposer(*around.ngram_sizes)),
    "suffix": lambda around: _with_grammar(around, SuffixProposer(), SharedSuffixProposer()),
}
"""Name -> factory. What a grammar forces is drafted with each."""


@dataclass(frozen=True)
class LookupMemory:
    """What a proposer keeps of texts, in bytes."""

    per_token: int = 0
    """Of the contexts of requests that run."""
    earlier: int = 0
    """Of requests that are over, at most."""


_SUFFIX_BYTES = 144
"""Of an automaton, per token, room to grow included (docs/proposers.md)."""
LOOKUP_MEMORY: dict[str, LookupMemory] = {
    "ngram": LookupMemory(per_token=40),
    "suffix": LookupMemory(per_token=_SUFFIX_BYTES, earlier=_SUFFIX_BYTES * MAX_SHARED_TOKENS),
}
"""By name, as `PROPOSERS`."""


def proposer_named(name: str, around: Surroundings) -> Proposer:
    """The proposer of a name.

    Raises:
        ConfigError: there is none.
    """
    factory = PROPOSERS.get(name)
    if factory is None:
        raise ConfigError("speculation", name, f"must be one of {', '.join(sorted(PROPOSERS))}")
    return factory(around)
