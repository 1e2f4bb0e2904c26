"""Messages are flattened into what templates expect, or refused by name."""

from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.text.messages import flatten_messages


def one(**message: Any) -> dict[str, Any]:
    return flatten_messages([{"role": "assistant", **message}])[0]


def arguments(value: Any) -> Any:
    call = {"id": "c0", "type": "function", "function": {"name": "now", "arguments": value}}
    return one(content=None, tool_calls=[call])["tool_calls"][0]["function"]["arguments"]


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert one(content=parts)["content"] == "a\nb"
    assert one(content=[])["content"] == ""


def test_null_or_missing_content_is_empty() -> None:
    assert one(content=None)["content"] == ""
    assert one()["content"] == ""


def test_empty_tool_calls_are_absent() -> None:
    assert "tool_calls" not in one(content="hi", tool_calls=[])
    assert "tool_calls" not in one(content="hi", tool_calls=None)


@pytest.mark.parametrize(
    ("given", "seen"),
    [(None, {}), ("", {}), ("{}", {}), ('{"a": [1]}', {"a": [1]}), ({"a": 1}, {"a": 1})],
)
def test_arguments_become_an_object(given: Any, seen: dict[str, Any]) -> None:
    assert arguments(given) == seen


@pytest.mark.parametrize("given", ["not json", "[1]", "3", [1], 3, "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(given: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].tool_calls\[0\].function.arguments="):
        arguments(given)


def test_a_call_may_come_without_its_wrapper() -> None:
    assert one(tool_calls=[{"name": "now", "arguments": "{}"}])["tool_calls"] == [{"name": "now", "arguments": {}}]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("hello", "messages[0]="),
        ({"content": "x"}, "messages[0].role="),
        ({"role": 1, "content": "x"}, "messages[0].role="),
        ({"role": "user", "content": 5}, "messages[0].content="),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]="),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type='image_url'"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text=None"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, "messages[0].content[0].text=1"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "messages[0].tool_calls="),
        ({"role": "assistant", "tool_calls": [1]}, "messages[0].tool_calls[0]="),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[0].tool_calls[0].function="),
    ],
)
def test_what_cannot_be_is_refused_by_name(message: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        flatten_messages([message])
    assert str(caught.value).startswith(field)


def test_nothing_is_changed_in_place() -> None:
    call = {"function": {"name": "now", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call], "name": "a"}]
    before = repr(messages)
    assert flatten_messages(messages)[0]["name"] == "a"
    assert repr(messages) == before
