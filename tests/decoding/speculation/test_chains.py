"""Chains, names, and how the runner asks."""

from collections.abc import Sequence

import numpy as np
import pytest

from octavo.decoding.speculation.build import PROPOSERS, Surroundings, proposer_named
from octavo.decoding.speculation.chains import BestDraft, FirstDraft
from octavo.decoding.speculation.grammar import GrammarProposer
from octavo.decoding.speculation.ngram import NgramProposer
from octavo.decoding.speculation.proposer import Draft, DraftedRequest
from octavo.decoding.speculation.tokens_only import TokensOnly
from octavo.errors import ConfigError
from octavo.execution.protocols import Proposer as RunnersProposer
from octavo.execution.protocols import RanStep, SlotArrays, StepBatch
from octavo.request.params import SamplingParams
from octavo.scheduling.plan import NewRequestData
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
        return [self.drafts.get(slot, Draft((), 0.0)) for slot in slots]


class Forced:
    """Forced tokens by slot."""

    def __init__(self, tokens: dict[int, list[int]]) -> None:
        self.tokens = tokens

    def forced_tokens(self, slot: int) -> Sequence[int]:
        return self.tokens.get(slot, [])


def test_the_first_that_has_something_is_taken_and_no_other_asked() -> None:
    one, two = Scripted({1: Draft([5], 0.1)}), Scripted({1: Draft([6, 6], 2.0), 2: Draft([7], 0.5)})
    assert [draft.token_ids for draft in FirstDraft((one, two)).propose([1, 2, 3], [4, 4, 4])] == [[5], [7], ()]
    assert two.told == [("propose", 2, 3)]


def test_the_best_is_the_one_of_which_most_is_expected() -> None:
    one, two = Scripted({1: Draft([5], 0.5), 2: Draft([5], 0.9)}), Scripted({1: Draft([6], 0.5), 2: Draft([6], 1.0)})
    assert [draft.token_ids for draft in BestDraft((one, two)).propose([1, 2], [4, 4])] == [[5], [6]]


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
    assert proposer.propose([0, 1], [2, 2]) == [Draft([1, 2], 2.0), Draft((), 0.0)]


@pytest.mark.parametrize("name", sorted(PROPOSERS))
def test_each_name_repeats_a_text_and_follows_a_grammar(name: str) -> None:
    proposer = proposer_named(name, Surroundings(Forced({1: [8, 9, 8, 9, 8]})))
    for slot in (0, 1):
        proposer.add(slot, Request([1, 2, 3, 4, 5, 6, 1, 2, 3, 4]))
    drafts = [draft.token_ids for draft in proposer.propose([0, 1], [2, 8])]
    assert drafts == [[5, 6], [8, 9, 8, 9, 8]]
    plain = proposer_named(name, Surroundings())
    plain.add(0, Request([1, 2, 3, 4, 1, 2, 3]))
    assert plain.propose([0], [1])[0].token_ids == [4]


def test_names_that_there_are_not_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="speculation='medusa': must be one of ngram, suffix"):
        proposer_named("medusa", Surroundings())


def step_of(slots: Sequence[int], drawn: Sequence[tuple[int, int]]) -> RanStep:
    """A step of so many slots, one row each, and what was drawn for which place."""
    one = np.ones(len(slots), np.int32)
    batch = StepBatch(
        token_ids=one,
        positions=one,
        seq_starts=np.arange(len(slots) + 1, dtype=np.int32),
        context_lens=one,
        block_tables=np.zeros((1, len(slots), 1), np.int32),
        slot_mapping=np.zeros((1, len(slots)), np.int32),
        logit_rows=one,
    )
    sampling, token_ids = np.array(drawn, np.int32).reshape(-1, 2).T
    return RanStep(batch, slots, sampling, token_ids, states=None)  # type: ignore[arg-type]


HELD = SlotArrays(np.zeros((1, 1), np.int32), np.zeros(1, np.int32), np.zeros((1, 1, 1), np.int32), 16)


def test_what_the_runner_tells_reaches_a_proposer_of_tokens() -> None:
    runners: RunnersProposer = TokensOnly(NgramProposer())
    data = NewRequestData(
        request_id="a",
        token_ids=[1, 2, 3, 1],
        num_prompt_tokens=4,
        params=SamplingParams(),
        eos_token_ids=(),
        block_ids=((1,),),
    )
    runners.add(2, data)
    assert list(runners.ran(step_of([5, 2], [(0, 9), (1, 2)]))) == [], "slot 5 was never added"
    assert runners.propose([2], [3], HELD) == [[3, 1, 2]]
    assert list(runners.ran(step_of([2], []))) == []
    runners.remove(2)


def test_a_slot_at_whose_tokens_it_fails_is_lost_alone() -> None:
    class Fails(Scripted):
        def extend(self, slot: int, token_ids: Sequence[int]) -> None:
            if slot == 1:
                raise MemoryError
            super().extend(slot, token_ids)

    inner = Fails({})
    runners = TokensOnly(inner)
    for slot in (0, 1, 2):
        runners.add(slot, Request([1]))
    assert list(runners.ran(step_of([0, 1, 2], [(0, 5), (0, 6), (1, 7), (2, 8)]))) == [1]
    assert inner.told[-2:] == [("extend", 0, 5, 6), ("extend", 2, 8)]
