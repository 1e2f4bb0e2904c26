"""The suffix automaton against a search through the whole text."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import _native
from octavo.decoding.speculation.suffix import SuffixProposer
from tests.decoding.speculation.texts import Request, places, suffix_draft

small_texts = st.lists(st.integers(0, 3), max_size=50)
MIN_CHANCES = st.sampled_from([0.0, 0.1, 0.3, 0.6])


def longest_earlier(text: list[int]) -> list[int]:
    """The longest end of a text that also stands elsewhere in it."""
    return next((text[i:] for i in range(1, len(text)) if len(places(text, text[i:])) > 1), [])


@given(text=small_texts, cut=st.integers(0, 50), min_chance=MIN_CHANCES)
def test_own_drafts_are_those_of_a_search(text: list[int], cut: int, min_chance: float) -> None:
    automaton = _native.SuffixAutomaton()
    automaton.extend(text[:cut])
    for i, token in enumerate(text[cut:], cut):
        automaton.extend([token])
        known = text[: i + 1]
        draft, chances, match = automaton.draft(6, min_chance)
        wanted, wanted_chances, wanted_match = suffix_draft(known, longest_earlier(known), 6, min_chance)
        assert (draft, match) == (wanted, wanted_match)
        assert chances == pytest.approx(wanted_chances)


@given(text=st.lists(st.integers(-1, 3), max_size=50), tail=small_texts, min_chance=MIN_CHANCES)
def test_drafts_for_other_texts_are_those_of_a_search(text: list[int], tail: list[int], min_chance: float) -> None:
    automaton = _native.SuffixAutomaton()
    automaton.extend(text)
    draft, chances, match = automaton.draft_after(tail, 6, min_chance)
    wanted, wanted_chances, wanted_match = suffix_draft(text, tail, 6, min_chance)
    assert (draft, match) == (wanted, wanted_match)
    assert chances == pytest.approx(wanted_chances)
    assert -1 not in draft


def test_tables_that_grow_lose_nothing() -> None:
    rng = random.Random(7)
    text = [rng.randrange(12) for _ in range(1500)]
    automaton = _native.SuffixAutomaton()
    automaton.extend(text)
    assert len(automaton) == 1500
    for _ in range(20):
        start = rng.randrange(1490)
        tail = text[start : start + rng.randrange(1, 9)]
        assert automaton.draft_after(tail, 4, 0.0)[0] == suffix_draft(text, tail, 4, 0.0)[0]


def test_many_tokens_are_taken_in_like_one_after_the_other() -> None:
    rng = random.Random(9)
    text = [rng.randrange(30) for _ in range(5000)]
    at_once, singly = _native.SuffixAutomaton(), _native.SuffixAutomaton()
    at_once.extend(text)
    for token in text:
        singly.extend([token])
    assert at_once.draft(8, 0.0) == singly.draft(8, 0.0)


def test_a_loop_costs_no_more_than_other_text_and_is_continued() -> None:
    automaton = _native.SuffixAutomaton()
    automaton.extend([5] * 20_000)
    draft, chances, match = automaton.draft(16, 0.2)
    assert draft == [5] * 16
    assert match == 19_999
    assert len(chances) == 16
    assert min(chances) > 0.99


def test_the_most_frequent_follower_is_drafted_and_of_equals_the_most_recent() -> None:
    proposer = SuffixProposer(min_chance=0.0)
    proposer.add(0, Request([1, 2, 8, 1, 2, 8, 1, 2, 9, 7, 1, 2]))
    proposer.add(1, Request([1, 2, 8, 1, 2, 9, 7, 1, 2]))
    assert [draft.token_ids[0] for draft in proposer.propose([0, 1], [1, 1])] == [8, 9]


def test_drafts_end_where_little_is_known() -> None:
    proposer = SuffixProposer(min_chance=0.2)
    proposer.add(0, Request([1, 2, 3, 4, 5, 6, 7, 8, 1]))
    assert proposer.propose([0], [8])[0].token_ids == [2], "2/7, and 2/7 * 0.53 is too little"
    proposer.extend(0, [2, 3, 4])
    assert proposer.propose([0], [8])[0].token_ids == [5, 6, 7, 8, 1, 2, 3, 4], "0.76, then more and more"
    proposer.remove(0)
    proposer.add(0, Request([1, 2]))
    assert list(proposer.propose([0], [8])[0].token_ids) == []


@pytest.mark.parametrize("chance", [-0.1, 1.0, float("nan")])
def test_chances_that_cannot_be_are_refused(chance: float) -> None:
    with pytest.raises(ValueError, match="min_chance"):
        SuffixProposer(chance)
