"""Proposers by name, as `--speculation` gives them."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo.decoding.speculation.chains import BestDraft
from octavo.decoding.speculation.grammar import ForcedTokens, GrammarProposer
from octavo.decoding.speculation.ngram import MAX_N, MIN_N, NgramProposer
from octavo.decoding.speculation.proposer import Proposer
from octavo.decoding.speculation.shared_texts import SharedSuffixProposer
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


def proposer_named(name: str, around: Surroundings) -> Proposer:
    """The proposer of a name.

    Raises:
        ConfigError: there is none.
    """
    factory = PROPOSERS.get(name)
    if factory is None:
        raise ConfigError("speculation", name, f"must be one of {', '.join(sorted(PROPOSERS))}")
    return factory(around)
