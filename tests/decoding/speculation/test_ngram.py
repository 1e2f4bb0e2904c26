"""Prompt lookup against a search through the whole text."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import _native
from octavo.decoding.speculation.ngram import NgramProposer, chance_behind
from octavo.decoding.speculation.proposer import NO_DRAFT
from tests.decoding.speculation.texts import Request, longest_ngram, self_continued

small_texts = st.lists(st.integers(0, 3), max_size=80)


@given(text=small_texts, cut=st.integers(0, 80), sizes=st.tuples(st.integers(1, 4), st.integers(0, 4)))
def test_the_index_finds_what_a_search_finds(text: list[int], cut: int, sizes: tuple[int, int]) -> None:
    min_n, max_n = sizes[0], sizes[0] + sizes[1]
    index = _native.NgramIndex(min_n, max_n)
    index.extend(text[:cut])
    for i, token in enumerate(text[cut:], cut):
        index.extend([token])
        known = text[: i + 1]
        n, place = longest_ngram(known, min_n, max_n)
        draft, match = index.draft(7)
        assert match == n
        assert draft == (self_continued(known, place, 7) if n else [])
    assert len(index) == len(text)


def test_tables_that_grow_lose_nothing() -> None:
    rng = random.Random(5)
    text = [rng.randrange(40) for _ in range(3000)]
    index = _native.NgramIndex(2, 5)
    for i, token in enumerate(text):
        index.extend([token])
        if i % 97 == 0:
            assert index.draft(1)[1] == longest_ngram(text[: i + 1], 2, 5)[0]


def test_memory_is_bounded_by_the_text() -> None:
    index = _native.NgramIndex(2, 5)
    index.extend(list(range(8192)))
    assert index.num_bytes < 100 * 8192
    loop = _native.NgramIndex(2, 5)
    loop.extend([1, 2] * 4096)
    assert loop.num_bytes < 10 * 8192, "n-grams that come again take no more room"


def test_a_text_that_repeats_is_continued_beyond_its_end() -> None:
    proposer = NgramProposer()
    proposer.add(3, Request([9, 1, 2, 1, 2]))
    (draft,) = proposer.propose([3], [5])
    assert draft.token_ids == [1, 2, 1, 2, 1]


def test_slots_are_apart_and_may_be_used_again() -> None:
    proposer = NgramProposer()
    proposer.add(0, Request([1, 2, 3, 1, 2]))
    proposer.add(1, Request([1, 2, 4, 1]))
    proposer.extend(1, [2])
    assert [draft.token_ids for draft in proposer.propose([1, 0], [1, 2])] == [[4], [3, 1]]
    proposer.remove(0)
    proposer.add(0, Request([1, 2]))
    assert proposer.propose([0], [4]) == [NO_DRAFT]
    assert proposer.num_bytes > 0


def test_chances_grow_with_the_match() -> None:
    assert chance_behind(1) == pytest.approx(2 / 7)
    assert chance_behind(4) == pytest.approx(0.7619, rel=1e-3)
    proposer = NgramProposer()
    proposer.add(0, Request([1, 2, 3, 4, 1, 2]))
    assert proposer.propose([0], [2])[0].chances == [chance_behind(2), chance_behind(3)]


@pytest.mark.parametrize(("min_n", "max_n"), [(0, 3), (3, 2), (1, 33)])
def test_sizes_that_cannot_be_are_refused_at_once(min_n: int, max_n: int) -> None:
    with pytest.raises(ValueError, match="1 <= min_n <= max_n <= 32"):
        NgramProposer(min_n, max_n)


def test_no_tokens_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="max_tokens=0"):
        _native.NgramIndex(1, 2).draft(0)
