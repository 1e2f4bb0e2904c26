"""Texts of requests that are over: whose they are, how much is kept."""

import random

from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding.speculation.proposer import NO_DRAFT
from octavo.decoding.speculation.shared_texts import SharedSuffixProposer, SharedTexts
from tests.decoding.speculation.texts import Request


def finished(proposer: SharedSuffixProposer, request: Request, written: list[int]) -> None:
    proposer.add(0, request)
    proposer.extend(0, written)
    proposer.remove(0)


def test_an_answer_helps_the_next_one() -> None:
    proposer = SharedSuffixProposer(min_chance=0.0)
    finished(proposer, Request([1]), [5, 6, 7, 8])
    proposer.add(1, Request([5, 6]))
    assert proposer.propose([1], [4])[0].token_ids == [7, 8], "and no token stands for its end"


def test_nothing_is_drafted_from_another_tenant_or_salt() -> None:
    proposer = SharedSuffixProposer(min_chance=0.0)
    finished(proposer, Request([1], tenant="a"), [5, 6, 7, 8])
    finished(proposer, Request([1], tenant="a", cache_salt="s"), [5, 6, 9, 3])
    others = [("b", None), ("", None), ("a", "t"), ("a", ""), ("s", "a")]
    for slot, (tenant, salt) in enumerate(others, 1):
        proposer.add(slot, Request([5, 6], tenant=tenant, cache_salt=salt))
    assert proposer.propose(range(1, 6), [4] * 5) == [NO_DRAFT] * 5
    proposer.add(6, Request([5, 6], tenant="a", cache_salt="s"))
    proposer.add(7, Request([5, 6], tenant="a"))
    assert [draft.token_ids for draft in proposer.propose([6, 7], [4, 4])] == [[9, 3], [7, 8]]


def test_prompts_are_not_kept_and_a_resumed_answer_is_not_counted_twice() -> None:
    texts = SharedTexts()
    proposer = SharedSuffixProposer(texts)
    finished(proposer, Request([1, 2, 3]), [])
    assert texts.num_tokens == 0
    finished(proposer, Request([1, 2, 3]), [4, 5])
    finished(proposer, Request([1, 2, 3, 4, 5], num_prompt_tokens=3), [6])
    assert texts.num_tokens == 2 + 1 + 1 + 1


def test_the_oldest_texts_go_first() -> None:
    texts = SharedTexts(max_tokens=20)
    for first in (10, 20, 30):
        texts.add(("", None), [first, first + 1, first + 2, first + 3])
    assert texts.draft(("", None), [30, 31], 2, 0.0).token_ids == [32, 33]
    assert texts.draft(("", None), [10, 11], 2, 0.0).token_ids == [12, 13]
    for first in (40, 50):
        texts.add(("", None), [first, first + 1, first + 2, first + 3])
    assert texts.draft(("", None), [10, 11], 2, 0.0) == NO_DRAFT
    assert texts.draft(("", None), [50, 51], 2, 0.0).token_ids == [52, 53]


def test_who_has_not_written_for_longest_loses_first() -> None:
    texts = SharedTexts(max_tokens=12)
    texts.add(("a", None), [1, 2, 3])
    texts.add(("b", None), [1, 2, 3])
    texts.add(("a", None), [7])
    texts.add(("c", None), [1, 2, 3, 4])
    assert texts.draft(("b", None), [1, 2], 1, 0.0) == NO_DRAFT
    assert texts.draft(("c", None), [1, 2], 1, 0.0).token_ids == [3]


@given(
    adds=st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 5), min_size=1, max_size=30)), max_size=30),
    max_tokens=st.integers(4, 60),
)
def test_the_bound_holds_whatever_comes(adds: list[tuple[str, list[int]]], max_tokens: int) -> None:
    texts = SharedTexts(max_tokens)
    for tenant, text in adds:
        texts.add((tenant, None), text)
        assert 0 < texts.num_tokens <= max_tokens
        last = texts.draft((tenant, None), text[-max_tokens // 2 + 1 : -1][-1:], 1, 0.0)
        assert set(last.token_ids) <= {token for owner, known in adds if owner == tenant for token in known}


def test_memory_follows_the_bound() -> None:
    rng = random.Random(1)
    texts = SharedTexts(max_tokens=20_000)
    for _ in range(100):
        texts.add((str(rng.randrange(5)), None), [rng.randrange(500) for _ in range(1000)])
    assert texts.num_tokens <= 20_000
    assert texts.num_bytes < 20_000 * 250
