"""One answer on its way through its grammar: masks, reasoning before it, and where it ends without an end token."""

import numpy as np
import pytest

from octavo.decoding.structured.guide import Guide
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.decoding.structured.walks import BACKEND, END, MARK, TOKENS, WORDS

CLOSE = TOKENS.index(b"</tool_call>")
MARKED = ReasoningSpec(begins=((MARK,),), ends=((CLOSE,),))


def guide_of(pattern: str, outputs: bytes | list[int] = b"", **params: object) -> Guide:
    spec = StructuredSpec(kind=StructuredKind.REGEX, source=pattern)
    made = SamplingParams(structured_outputs=spec, max_tokens=100, **params)  # type: ignore[arg-type]
    ends = () if made.ignore_eos else (END,)
    return Guide(BACKEND.compile(spec), spec, made, ends, list(outputs))


def allowed(guide: Guide) -> set[int]:
    row = np.full(WORDS, 0x55555555, np.int32)
    guide.fill_mask(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[: len(TOKENS)]).tolist())


def take(guide: Guide, tokens: bytes | list[int]) -> list[bool]:
    return [guide.follow(token) for token in tokens]


def test_with_end_tokens_the_answer_ends_with_one() -> None:
    guide = guide_of("[0-2]{2}")
    assert {ord("0"), ord("1"), ord("2")} <= allowed(guide)
    assert END not in allowed(guide)
    assert take(guide, b"01") == [False, False]
    assert allowed(guide) == {END}
    assert take(guide, [END]) == [False]
    assert not guide.is_over


@pytest.mark.parametrize(
    "params",
    [{"ignore_eos": True}, {"min_tokens": 9}, {"allowed_token_ids": (48, 49)}, {"bad_words_token_ids": ((END,),)}],
    ids=str,
)
def test_without_one_it_ends_where_nothing_can_follow(params: dict[str, object]) -> None:
    guide = guide_of("[01]{3}", **params)
    assert take(guide, b"010") == [False, False, True]
    assert guide.is_over
    assert take(guide_of("[01]+", **params), b"010101") == [False] * 6, "more could follow"
    resumed = guide_of("[01]{3}", b"01", **params)
    assert take(resumed, b"0") == [True]


def test_min_tokens_that_are_reached_leave_the_end_to_an_end_token() -> None:
    guide = guide_of("[01]{3}", min_tokens=3)
    assert take(guide, b"010") == [False, False, False]
    assert allowed(guide) == {END}


def test_a_token_that_is_not_allowed() -> None:
    with pytest.raises(RequestFailedError, match="structured_outputs: token 120 at 1 of the answer"):
        take(guide_of("[ab]+"), b"ax")
    with pytest.raises(RequestFailedError, match="token 120 at 1"):
        guide_of("[ab]+", b"ax")


def test_only_the_empty_answer() -> None:
    assert allowed(guide_of("()")) == {END}
    with pytest.raises(InvalidRequestError, match="only the empty answer"):
        guide_of("()", ignore_eos=True)


def test_reasoning_is_free_of_the_shape_but_cannot_end_the_answer() -> None:
    guide = guide_of("[ab]{2}", reasoning=MARKED)
    assert allowed(guide) == {MARK, *allowed(guide_of("[ab]{2}"))}
    assert take(guide, [MARK]) == [False]
    everything = set(range(len(TOKENS))) - {END}
    for token in b"zz{":
        assert allowed(guide) == everything
        assert not guide.follow(token)
    take(guide, [CLOSE])
    assert allowed(guide) == allowed(guide_of("[ab]{2}"))
    take(guide, b"ab")
    assert allowed(guide) == {END}


def test_an_answer_need_not_reason() -> None:
    guide = guide_of("[ab]{2}", reasoning=MARKED)
    take(guide, b"a")
    assert MARK not in allowed(guide)
    with pytest.raises(RequestFailedError):
        take(guide, [MARK])


def test_reasoning_that_the_prompt_has_begun() -> None:
    spec = ReasoningSpec(ends=((CLOSE,),), is_open=True)
    guide = guide_of("()|[ab]{2}", reasoning=spec, ignore_eos=True)
    assert ord("z") in allowed(guide)
    take(guide, [*b"zz", CLOSE])
    assert take(guide, b"ab") == [False, True]


def test_a_marker_of_text_that_begins_like_the_shape() -> None:
    """`<a>` or `<b`: after `<` both may come, and only what both have in common is left open."""
    spec = ReasoningSpec(begins=(tuple(b"<a>"),), ends=((CLOSE,),))
    assert take(guide_of("<b", reasoning=spec, ignore_eos=True), b"<b") == [False, True]
    guide = guide_of("<b", reasoning=spec)
    take(guide, b"<")
    assert allowed(guide) == {ord("a"), ord("b")}
    take(guide, b"a")
    assert allowed(guide) == {ord(">")}
    take(guide, [*b">zz", CLOSE])
    assert allowed(guide) == allowed(guide_of("<b"))
    take(guide, b"<b")
    assert allowed(guide) == {END}


@pytest.mark.parametrize("cut", range(9))
def test_after_a_preemption_it_goes_on_where_it_stood(cut: int) -> None:
    tokens = [MARK, *b"zz", CLOSE, *b"abba"]
    straight, resumed = (guide_of("[ab]{4}", part, reasoning=MARKED) for part in ([], tokens[:cut]))
    take(straight, tokens[:cut])
    for token in tokens[cut:]:
        assert allowed(straight) == allowed(resumed)
        assert straight.follow(token) == resumed.follow(token)
    assert allowed(straight) == allowed(resumed) == {END}
