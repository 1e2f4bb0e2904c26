"""However an answer is cut into pieces, and whatever it says, the same content and calls come out of it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import times
from tests.server.tools.answers import Call, cut, parsed, places
from tests.server.tools.samples import CALLS, PIECES, PLAIN

FAMILIES = sorted(PIECES)
EXPECTED = [Call("get_weather", '{"city": "Oslo"}', True), Call("add", '{"a": 1, "b": 2}', True)]


def texts(family: str) -> st.SearchStrategy[str]:
    """Adversarial texts: markers, halves of markers, and bits of calls, in any order."""
    pieces = st.sampled_from((*PIECES[family], *PIECES[family], *CALLS[family], *PLAIN))
    return st.lists(pieces, max_size=12).map("".join)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_two_pieces_of_two_calls_give_the_calls(family: str) -> None:
    text = "Just a moment.\n\n" * (family != "json") + "".join(CALLS[family])
    for place in range(len(text) + 1):
        answer = parsed(family, [text[:place], text[place:]])
        assert answer.calls == EXPECTED
        assert answer.content == ("Just a moment." if family != "json" else "")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_cutting_gives_the_same(family: str) -> None:
    @settings(max_examples=times(80), deadline=None)
    @given(texts(family), places)
    def check(text: str, places: list[int]) -> None:
        whole = parsed(family, [text])
        assert parsed(family, cut(text, places)) == whole
        assert parsed(family, text) == whole

    check()


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_call_the_text_comes_back_as_it_was(family: str) -> None:
    @settings(max_examples=times(60), deadline=None)
    @given(texts(family))
    def check(text: str) -> None:
        answer = parsed(family, [text])
        if not answer.calls:
            assert answer.content == text

    check()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_raises(family: str) -> None:
    """Over ten thousand texts in all, each in random pieces against the whole."""
    chance = random.Random(family)
    pieces = (*PIECES[family], *CALLS[family], *PLAIN)
    for _ in range(times(1200)):
        text = "".join(chance.choices(pieces, k=chance.randrange(1, 14)))
        cuts = [chance.randrange(len(text) + 1) for _ in range(chance.randrange(8))]
        assert parsed(family, cut(text, cuts)) == parsed(family, [text]), text
