"""Spellings of special tokens are found leftmost first, longest at each place."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.special_splitter import SpecialSplitter


def split(text: str, *spellings: str) -> list[str | int]:
    return list(SpecialSplitter({spelling: i for i, spelling in enumerate(spellings)}).split(text))


def test_longest_at_the_leftmost_place() -> None:
    assert split("a<x><x>>b", "<x>", "<x>>", "x>") == ["a", 0, 1, "b"]


def test_a_place_that_holds_none_does_not_hide_the_next() -> None:
    assert split("<<x>", "<x>") == ["<", 0]
    assert split("<x<x>x>", "<x>") == ["<x", 0, "x>"]


def test_single_characters_and_words_mix() -> None:
    assert split("a|b<|end|>", "|", "<|end|>") == ["a", 0, "b", 1]


def test_nothing_special() -> None:
    assert split("abc") == ["abc"]
    assert split("", "<x>") == []
    assert split("abc", "") == ["abc"]


@given(
    st.text(alphabet="<ab>|", max_size=30),
    st.lists(st.text(alphabet="<ab>|", min_size=1, max_size=4), min_size=1, max_size=5, unique=True),
)
def test_the_same_as_an_alternation_longest_first(text: str, spellings: list[str]) -> None:
    ids = {spelling: i for i, spelling in enumerate(spellings)}
    pattern = re.compile("(" + "|".join(map(re.escape, sorted(spellings, key=len, reverse=True))) + ")")
    expected = [ids.get(part, part) for part in pattern.split(text) if part]
    assert split(text, *spellings) == expected


def test_many_near_misses_are_cheap() -> None:
    splitter = SpecialSplitter({f"<unused{i}>": i for i in range(6000)})
    start = time.thread_time()
    assert list(splitter.split("<u" * 100_000)) == ["<u" * 100_000]
    assert time.thread_time() - start < 2


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_the_windows_of_the_search_change_nothing(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a<|im|>b<|i<|im|><|<|im|>|im|>c<|im_end|><<|im|" * 3
    whole = split(text, "<|im|>", "<|im_end|>", "<<", "x")
    monkeypatch.setattr("octavo.text.special_splitter.WINDOW_CHARS", window)
    assert split(text, "<|im|>", "<|im_end|>", "<<", "x") == whole
    assert len(whole) > 20
