"""The scanner of Python literals against `ast.literal_eval`, which the product never calls."""

import ast
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.server.tools.python_text import python_value
from octavo.server.tools.reader import MalformedCallError, read_whole, result_of

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
bits = st.lists(
    st.sampled_from([*"'\"[](){},: -+.\\\n", "'a'", '"""', "1", "0x1f", "1_0", "1e5", "True", "None", "\\n", "\\x41"]),
    max_size=9,
).map("".join)


def as_json(text: str) -> str:
    """The JSON of a text that is one literal."""
    reader, pieces = read_whole(text), list[str]()
    result_of(python_value(reader, pieces.append))
    if result_of(reader.peek()):
        raise MalformedCallError("more behind it")
    return "".join(pieces)


def plain(value: Any) -> Any:
    """A Python value as it comes back from JSON."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(values)
def test_what_python_writes_is_read(value: object) -> None:
    assert json.loads(as_json(repr(value))) == plain(value)


@settings(max_examples=500)
@given(bits)
def test_what_is_accepted_means_what_python_means(text: str) -> None:
    try:
        result = json.loads(as_json(text))
    except MalformedCallError:
        return
    if "\n" in text and "'''" not in text and '"""' not in text:
        return  # line breaks inside of ordinary strings are taken, though Python refuses them
    try:
        assert result == plain(ast.literal_eval(text))
    except SyntaxError:
        assert text.startswith(("0", "-0")) or "0" in text, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", "true"),
        ("null", "null"),
        (r"'\d+\'s \u00e9\x41\U0001F600\n\0'", r'"\\d+' + r"'s \u00e9A😀\n\u0000" + '"'),
        ("'''a\"'b\nc'''", r'''"a\"'b\nc"'''),
        ("''", '""'),
        ("(1)", "1"),
        ("(1,)", "[1]"),
        ("()", "[]"),
        ("{'a': (2), }", '{"a": 2}'),
        ("0x1F", "31"),
        ("1_000", "1000"),
        (".5", "0.5"),
        ("-1e-7", "-1e-7"),
        ("1e999", "1e999"),
        ("12345678901234567890", "12345678901234567890"),
    ],
)
def test_literals(text: str, expected: str) -> None:
    assert as_json(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "f()",
        "1 + 2",
        "{1: 2}",
        "{1, 2}",
        "[1 2]",
        "'a",
        "'\\x4'",
        "nan",
        "__import__('os')",
        "b'x'",
        "[" * 200,
    ],
)
def test_what_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(MalformedCallError):
        as_json(text)
