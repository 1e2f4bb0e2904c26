"""Stop strings are found where they end first, however the text is cut."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.text.stop import StopStringMatcher

letters = st.text(alphabet="abc", max_size=30)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def first_match(text: str, stops: list[str]) -> tuple[int, int] | None:
    """(start, end) of the match that ends first, of those the one that begins first: by looking everywhere."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts), end
    return None


def run(pieces: list[str], stops: list[str], include_stop: bool = False) -> tuple[list[str], str | None]:
    matcher = StopStringMatcher(stops, include_stop=include_stop)
    emitted = []
    for piece in pieces:
        found = matcher.feed(piece)
        emitted.append(found.text)
        if found.stop is not None:
            return emitted, found.stop
    return [*emitted, matcher.flush()], None


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    text = draw(letters)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(cut_texts(), stop_lists, st.booleans())
def test_any_cutting_gives_the_first_match(pieces: list[str], stops: list[str], include_stop: bool) -> None:
    text = "".join(pieces)
    emitted, stop = run(pieces, stops, include_stop)
    match = first_match(text, stops)
    if match is None:
        assert (stop, "".join(emitted)) == (None, text)
    else:
        start, end = match
        assert stop == text[start:end]
        assert "".join(emitted) == text[: end if include_stop else start]


@given(cut_texts(), st.integers(0, 29), st.integers(1, 8))
def test_a_single_stop_cuts_at_its_first_place(pieces: list[str], start: int, size: int) -> None:
    text = "".join(pieces)
    stop = text[start : start + size]
    if stop:
        assert "".join(run(pieces, [stop])[0]) == text[: text.find(stop)]


@given(cut_texts(), stop_lists)
def test_only_what_could_begin_a_stop_is_held(pieces: list[str], stops: list[str]) -> None:
    matcher = StopStringMatcher(stops)
    fed = emitted = ""
    for piece in pieces:
        found = matcher.feed(piece)
        if found.stop is not None:
            return
        fed += piece
        emitted += found.text
        held = fed.removeprefix(emitted)
        assert held == "" or any(stop.startswith(held) for stop in stops)
        assert not any(fed.endswith(stop[:size]) for stop in stops for size in range(len(held) + 1, len(stop)))


def test_a_stop_inside_one_piece() -> None:
    assert run([" ABC", " DEF", " G"], ["DE"]) == ([" ABC", " "], "DE")


def test_nothing_of_a_stop_leaks_while_it_arrives() -> None:
    assert run(["ABC", "DEF", "GHI", "JKL"], ["DEFGHIJ"]) == (["ABC", "", "", ""], "DEFGHIJ")


def test_a_false_start_is_given_back() -> None:
    assert run(["ABC", "DEF", "GHX", "JKL"], ["DEFGHIJ"]) == (["ABC", "", "DEFGHX", "JKL", ""], None)


def test_a_false_start_can_hide_a_true_one() -> None:
    assert run(["aa", "a", "ab"], ["aab"]) == (["", "a", "a"], "aab")


def test_what_is_held_comes_with_the_flush() -> None:
    assert run(["so far ", "<|end"], ["<|end|>"]) == (["so far ", "", "<|end"], None)


def test_the_first_piece_may_be_the_stop() -> None:
    assert run(["\n"], ["\n"]) == ([""], "\n")
    assert run(["\n"], ["\n"], include_stop=True) == (["\n"], "\n")


def test_of_two_that_end_together_the_longer_wins() -> None:
    assert run(["Hi\nUser:"], ["User:", "\nUser:"]) == (["Hi"], "\nUser:")


def test_text_after_the_stop_is_dropped() -> None:
    assert run(["one STOP two"], ["STOP"], include_stop=True) == (["one STOP"], "STOP")


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="stop="):
        StopStringMatcher(["a", ""])


def test_cost_does_not_grow_with_the_stop() -> None:
    def seconds(size: int) -> float:
        matcher = StopStringMatcher(["a" * size + "b"])
        start = time.thread_time()
        for _ in range(20_000):
            matcher.feed("a")
        return time.thread_time() - start

    short, long = (min(seconds(size) for _ in range(3)) for size in (10, 2_000))
    assert long < 10 * short
