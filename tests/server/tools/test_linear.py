"""The work grows with the text, not with its square: counted in function calls and characters kept, not in seconds."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from octavo.server.tools.family import tool_parser
from octavo.server.tools.registry import tool_family
from tests.server.tools.answers import TOOLS

PIECE = 3
"""Characters a feed, about a token."""

TEXTS: dict[str, tuple[str, Callable[[int], str]]] = {
    "content": ("hermes", lambda n: "Some words.\n" * (n // 12)),
    "white space": ("hermes", lambda n: " \n" * (n // 2)),
    "beginnings of markers": ("hermes", lambda n: "<<tool_" * (n // 7)),
    "failed calls": ("hermes", lambda n: "<tool_call>" * (n // 11)),
    "calls": ("hermes", lambda n: '<tool_call>{"name": "now"}</tool_call>\n' * (n // 39)),
    "a long string": ("hermes", lambda n: '<tool_call>{"name": "add", "arguments": {"a": "' + "text" * (n // 4)),
    "many numbers": ("hermes", lambda n: '<tool_call>{"name": "add", "arguments": {"a": [' + "1," * (n // 2)),
    "a long number": ("hermes", lambda n: '<tool_call>{"name": "add", "arguments": {"a": ' + "1" * n),
    "escapes": ("hermes", lambda n: '<tool_call>{"name": "add", "arguments": {"a": "' + "\\n" * (n // 2)),
    "arguments first": ("hermes", lambda n: '<tool_call>{"arguments": {"a": "' + "text" * (n // 4)),
    "arguments as text": ("hermes", lambda n: '<tool_call>{"name": "add", "arguments": "' + "text" * (n // 4)),
    "a long name": ("hermes", lambda n: '<tool_call>{"name": "' + "\\n" * (n // 2)),
    "a list": ("granite", lambda n: "<|tool_call|>[" + '{"name": "now"}, ' * (n // 17)),
    "a bare word": ("mistral", lambda n: "[TOOL_CALLS]" + "a" * n),
    "an open call": ("deepseek_v3", lambda n: "<｜tool▁call▁begin｜>" + "a " * (n // 2)),
    "a Python string": ("pythonic", lambda n: "[add(a='" + "text" * (n // 4)),
    "a tuple": ("pythonic", lambda n: "[add(a=(" + "1, " * (n // 3)),
    "a dict": ("pythonic", lambda n: "[add(a={" + "'k': 'v', " * (n // 10)),
    "quotes": ("pythonic", lambda n: "[add(a='''" + "''x" * (n // 3)),
    "a text argument": ("qwen3_coder", lambda n: "<function=get_weather>\n<parameter=city>\n" + "\n</x" * (n // 4)),
    "a JSON argument": ("qwen3_coder", lambda n: "<function=get_weather>\n<parameter=tags>\n" + "[1]\n" * (n // 4)),
    "parameters": ("qwen3_coder", lambda n: "<function=add>" + "<parameter=a>1</parameter>" * (n // 26)),
    "a scalar": ("functiongemma", lambda n: "<start_function_call>call:add{a:" + "text" * (n // 4)),
    "a quoted string": ("functiongemma", lambda n: "<start_function_call>call:add{a:<escape>" + "<esc " * (n // 5)),
}


def work(family: str, text: str) -> tuple[int, int]:
    """Function calls (Python's and built-in ones) it takes to parse a text, and the most characters kept."""
    parser = tool_parser(tool_family(family), TOOLS)
    num_calls = most_kept = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    for at in range(0, len(text), PIECE):
        sys.setprofile(count)
        parser.feed(text[at : at + PIECE])
        sys.setprofile(None)
        most_kept = max(most_kept, parser.num_kept)
    sys.setprofile(count)
    parser.finish()
    sys.setprofile(None)
    return num_calls, most_kept


@pytest.mark.parametrize("case", TEXTS)
def test_twice_the_text_is_twice_the_work(case: str) -> None:
    family, text = TEXTS[case]
    small, kept = work(family, text(2000))
    large, kept_of_large = work(family, text(4000))
    assert large < 2.2 * small
    assert max(kept, kept_of_large) < 30, "text is kept to be looked at again"


def test_a_whole_text_at_once_is_no_more_work() -> None:
    text = "<tool_call>" + '{"name": "add", "arguments": {"a": "text"}}' * 100
    num_calls, _ = work("hermes", text)
    parser = tool_parser(tool_family("hermes"), TOOLS)
    num_whole = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal num_whole
        num_whole += event in ("call", "c_call")

    sys.setprofile(count)
    parser.feed(text)
    sys.setprofile(None)
    assert num_whole < num_calls
