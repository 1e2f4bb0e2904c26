"""Text in pieces is read as if it were whole."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.server.tools.reader import MalformedCallError, MarkerSet, TextReader, read_whole, result_of
from tests.server.tools.answers import cut, places


@pytest.mark.parametrize("markers", [("a", "ab"), ("abc", "b"), ("",)])
def test_markers_inside_markers_are_refused(markers: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="inside another"):
        MarkerSet(markers)


@given(st.text(alphabet="<ab>", max_size=40), places)
def test_the_first_marker_is_found_and_the_text_before_it_passed_on(text: str, places: list[int]) -> None:
    markers = ("<a>", "<b>", "b>a<")
    reader, pieces, found = TextReader(), list[str](), list[str]()

    def read():
        found.append((yield from reader.until(MarkerSet(markers), pieces.append)))

    reading = read()
    next(reading)
    for piece in cut(text, places):
        reader.push(piece)
        next(reading, None)
    reader.close()
    next(reading, None)
    begin = min((text.find(marker) for marker in markers if marker in text), default=len(text))
    assert "".join(pieces) == text[:begin]
    assert found == [next((marker for marker in markers if text.startswith(marker, begin)), "")]


def test_words_have_a_limit() -> None:
    word = re.compile("[a-z]+")
    assert result_of(read_whole("abcd ").word(word, limit=4)) == "abcd"
    with pytest.raises(MalformedCallError) as error:
        result_of(read_whole("abcde").word(word, limit=4))
    assert error.value.unread == "abcd"


def test_literals_are_read_whole_or_not_at_all() -> None:
    reader = read_whole("abcd")
    assert result_of(reader.accept("abx", "b")) == ""
    assert result_of(reader.accept("b", "abc")) == "abc"
    with pytest.raises(MalformedCallError):
        result_of(reader.expect("e"))
    assert reader.skip() == "d"


def test_a_waiting_parser_has_no_result() -> None:
    with pytest.raises(RuntimeError, match="waits"):
        result_of(TextReader().peek())
