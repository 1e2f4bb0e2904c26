"""Chains, names, and how the runner asks."""

from collections.abc import Sequence

import numpy as np
import pytest

from octavo.decoding.speculation.build import PROPOSERS, Surroundings, proposer_named
from octavo.decoding.speculation.chains import BestDraft, FirstDraft
from octavo.decoding.speculation.grammar import GrammarProposer
from octavo.decoding.speculation.proposer import NO_DRAFT, Draft, DraftedRequest
from octavo.decoding.speculation.tokens_only import TokensOnly
from octavo.errors import ConfigError
from octavo.execution.protocols import Proposer as RunnersProposer
from octavo.execution.protocols import SlotArrays
from tests.decoding.speculation.texts import Request


class Scripted:
    """Drafts by slot, and what it was told."""

    def __init__(self, drafts: dict[int, Draft]) -> None:
        self.drafts = drafts
        self.told: list[tuple[object, ...]] = []

    def add(self, slot: int, request: DraftedRequest) -> None:
        self.told.append(("add", slot, *request.token_ids))

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        self.told.append(("extend", slot, *token_ids))

    def remove(self, slot: int) -> None:
        self.told.append(("remove", slot))

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        self.told.append(("propose", *slots))
        return [self.drafts.get(slot, NO_DRAFT) for slot in slots]


class Forced:
    """Forced tokens by slot."""

    def __init__(self, tokens: dict[int, list[int]]) -> None:
        self.tokens = tokens

    def forced_tokens(self, slot: int) -> Sequence[int]:
        return self.tokens.get(slot, [])


def test_the_first_that_has_something_is_taken_and_no_other_asked() -> None:
    one, two = Scripted({1: Draft([5], [0.1])}), Scripted({1: Draft([6, 6], [1, 1]), 2: Draft([7], [0.5])})
    assert [draft.token_ids for draft in FirstDraft((one, two)).propose([1, 2, 3], [4, 4, 4])] == [[5], [7], ()]
    assert two.told == [("propose", 2, 3)]


def test_the_best_is_the_one_of_which_most_is_expected() -> None:
    one = Scripted({1: Draft([5], [0.5]), 2: Draft([5], [0.9])})
    two = Scripted({1: Draft([6], [0.5]), 2: Draft([6, 7], [0.6, 0.6])})
    assert [draft.token_ids for draft in BestDraft((one, two)).propose([1, 2], [4, 4])] == [[5], [6, 7]]


@pytest.mark.parametrize("chain", [FirstDraft, BestDraft])
def test_all_members_are_told(chain: type[FirstDraft | BestDraft]) -> None:
    one, two = Scripted({}), Scripted({})
    members = chain((one, two))
    members.add(4, Request([1, 2]))
    members.extend(4, [3])
    members.remove(4)
    assert one.told == two.told == [("add", 4, 1, 2), ("extend", 4, 3), ("remove", 4)]
    with pytest.raises(ValueError, match="at least one"):
        chain(())


def test_forced_tokens_are_drafted_up_to_the_bound() -> None:
    proposer = GrammarProposer(Forced({0: [1, 2, 3]}))
    assert proposer.propose([0, 1], [2, 2]) == [Draft([1, 2], [0.75, 0.75]), NO_DRAFT]


@pytest.mark.parametrize("name", sorted(PROPOSERS))
def test_each_name_repeats_a_text_and_follows_a_grammar(name: str) -> None:
    proposer = proposer_named(name, Surroundings(Forced({1: [8, 9, 8, 9, 8]})))
    proposer.add(0, Request([1, 2, 3, 4, 5, 6, 1, 2, 3, 4]))
    proposer.add(1, Request([1, 2, 3, 4, 5, 6]))
    drafts = [draft.token_ids for draft in proposer.propose([0, 1], [2, 8])]
    assert drafts == [[5, 6], [8, 9, 8, 9, 8]]
    plain = proposer_named(name, Surroundings())
    plain.add(0, Request([1, 2, 3, 4, 1, 2, 3]))
    assert plain.propose([0], [1])[0].token_ids == [4]


def test_names_that_there_are_not_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="speculation='medusa': must be one of ngram, suffix"):
        proposer_named("medusa", Surroundings())


def held_of(texts: dict[int, list[int]]) -> SlotArrays:
    """What a runner of eight slots holds."""
    tokens, counts = np.zeros((8, 32), np.int32), np.zeros(8, np.int32)
    for slot, text in texts.items():
        tokens[slot, : len(text)], counts[slot] = text, len(text)
    return SlotArrays(tokens, counts, np.zeros((1, 8, 2), np.int32), 16)


def test_a_proposer_of_tokens_hears_of_them_when_it_is_asked() -> None:
    inner = Scripted({2: Draft([7, 8, 9], [0.9, 0.5, 0.9]), 3: Draft([4], [0.4])})
    runners: RunnersProposer = TokensOnly(inner)
    for slot in (1, 2, 3):
        runners.add(slot, Request([1, 2]))
    held = held_of({1: [1, 2, 6], 2: [1, 2, 3, 4], 3: [1, 2]})
    assert runners.propose([2, 3], [3, 3], 0.4, held) == [[7, 8, 9], [4]]
    heard: list[tuple[object, ...]] = [("add", 2, 1, 2), ("extend", 2, 3, 4), ("add", 3, 1, 2), ("propose", 2, 3)]
    assert inner.told == heard, "nothing of slot 1"
    assert runners.propose([2, 3], [3, 3], 0.41, held) == [[7, 8], []], "0.9 * 0.5 * 0.9 is too little"
    assert inner.told[4:] == [("propose", 2, 3)], "what it has been told it is not told again"
    held.tokens[2, 4], held.num_tokens[2] = 5, 5
    runners.remove(2)
    runners.remove(1)
    assert inner.told[5:] == [("extend", 2, 5), ("remove", 2)]


def test_a_slot_at_whose_tokens_it_fails_is_still_let_go_of() -> None:
    class Fails(Scripted):
        def extend(self, slot: int, token_ids: Sequence[int]) -> None:
            raise MemoryError

    inner = Fails({})
    runners = TokensOnly(inner)
    runners.add(1, Request([1]))
    with pytest.raises(MemoryError):
        runners.propose([1], [1], 0.0, held_of({1: [1, 2]}))
    with pytest.raises(MemoryError):
        runners.remove(1)
    assert inner.told[-1] == ("remove", 1)
    runners.add(1, Request([3]))
