"""The incremental JSON scanner against the library that clients use."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.server.tools.json_text import MAX_NESTING, json_string, json_value, mended_object, quoted
from octavo.server.tools.reader import MalformedCallError, TextReader, read_whole, result_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
bits = st.lists(
    st.sampled_from(
        [
            *'{}[]",:\\ \n',
            '"a"',
            '"b": ',
            "1",
            "-0",
            "1.5",
            "2e",
            "+3",
            "01",
            "true",
            "nul",
            "l",
            "\\u00e9",
            "\\x",
            "\x01",
        ]
    ),
    max_size=9,
).map("".join)


def scanned(text: str) -> tuple[str, str]:
    """What is passed on of a value, and the rest; the rest of a malformed one counts from where it went wrong."""
    reader, pieces = read_whole(text), list[str]()
    try:
        result_of(json_value(reader, pieces.append))
    except MalformedCallError:
        return "".join(pieces), "malformed"
    rest: list[str] = []
    while result_of(reader.peek()):
        rest.append(reader.skip())
    return "".join(pieces), "".join(rest)


def beginning(text: str) -> str:
    """What is passed on before a value is whole."""
    reader, pieces = TextReader(), list[str]()
    reader.push(text)
    next(json_value(reader, pieces.append), None)
    return "".join(pieces)


@given(values, st.booleans(), st.sampled_from([None, 1]), st.text(alphabet="]} ,x", max_size=3))
def test_valid_text_is_passed_on_unchanged(value: object, ascii_only: bool, indent: int | None, behind: str) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    separator = "" if text[-1] in '"]}' else " "
    assert scanned(text + separator + behind) == (text, separator + behind)


@given(values, st.data())
def test_everything_is_passed_on_at_once(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    size = data.draw(st.integers(0, len(text)))
    assert beginning(text[:size]) == text[:size]


@settings(max_examples=500)
@given(bits)
def test_accepts_what_the_library_accepts(text: str) -> None:
    passed_on, rest = scanned(text.strip(" \n"))
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        assert rest
    else:
        assert (json.loads(passed_on), rest) == (value, "")


def test_raw_control_characters_in_strings_are_escaped() -> None:
    assert scanned('{"code": "a\n\tb\x00"}') == ('{"code": "a\\n\\tb\\u0000"}', "")


def test_braces_in_strings_are_text() -> None:
    text = '{"cmd": "mkdir -p test/{test1,test2", "end": "</tool_call>}]", "q": "\\"", "z": "\\u0000😀"}'
    assert scanned(text) == (text, "")


def test_nesting_is_bounded() -> None:
    deep = "[" * MAX_NESTING + "]" * MAX_NESTING
    assert scanned(deep) == (deep, "")
    assert scanned(f"[{deep}]")[1] == "malformed"


@given(st.text())
def test_strings_are_decoded(text: str) -> None:
    for ascii_only in (False, True):
        assert result_of(json_string(read_whole(json.dumps(text, ensure_ascii=ascii_only)))) == text


@pytest.mark.parametrize("literal", ['"\\ud83d"', '"\\udc00x"', '"', '"\\u12"', "x", '"a'])
def test_what_is_no_text_is_no_string(literal: str) -> None:
    with pytest.raises(MalformedCallError):
        result_of(json_string(read_whole(literal)))


@given(st.lists(st.text(max_size=4), max_size=4))
def test_pieces_can_be_quoted_apart(pieces: list[str]) -> None:
    assert '"' + "".join(quoted(piece)[1:-1] for piece in pieces) + '"' == quoted("".join(pieces))


def test_a_whole_object_is_one_object() -> None:
    assert mended_object(' {"a": "x\ny"} ') == '{"a": "x\\ny"}'
    for text in ("", "[]", "{} {}", "{", "Oslo", '"{}"'):
        with pytest.raises(MalformedCallError):
            mended_object(text)
