"""Answers as parsers see them: cut into pieces, and folded back into what a client gets."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from hypothesis import strategies as st

from octavo.server.tools.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from octavo.server.tools.family import tool_parser
from octavo.server.tools.registry import tool_family
from octavo.server.tools.tool import Tool

WEATHER = Tool(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
            "where": {"type": "object"},
            "tags": {"type": "array"},
            "unit": {"enum": ["c", "f"]},
            "zip": {"type": ["string", "null"]},
            "any": {},
        },
        "required": ["city"],
    },
)
ADD = Tool("add", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})
TOOLS = (WEATHER, ADD, Tool("now"))


class Parser(Protocol):
    def feed(self, text: str) -> list[AnswerEvent]: ...
    def finish(self) -> list[AnswerEvent]: ...


@dataclass
class Call:
    name: str
    arguments: str = ""
    complete: bool | None = None
    """None while it is open."""


@dataclass
class Answer:
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, events: Iterable[AnswerEvent]) -> "Answer":
        """Adds events, and checks that they come as promised: whole calls, in order, and nothing empty."""
        for event in events:
            is_open = bool(self.calls) and self.calls[-1].complete is None
            match event:
                case ContentDelta(text):
                    assert text and not is_open
                    self.content += text
                case ReasoningDelta(text):
                    assert text and not is_open
                    self.reasoning += text
                case ToolCallStart(index, _, name):
                    assert index == len(self.calls) and name and not is_open
                    self.calls.append(Call(name))
                case ToolCallArgumentsDelta(index, text):
                    assert text and is_open and index == len(self.calls) - 1
                    self.calls[-1].arguments += text
                case ToolCallEnd(index, complete):
                    assert is_open and index == len(self.calls) - 1
                    self.calls[-1].complete = complete
        return self


def fed(parser: Parser, pieces: Iterable[str]) -> Answer:
    """What a parser makes of an answer; complete arguments are an object."""
    answer = Answer()
    for piece in pieces:
        events = parser.feed(piece)
        kinds = [(type(event), getattr(event, "index", 0)) for event in events]
        assert all(a != b for a, b in pairwise(kinds)), "adjacent deltas were not merged"
        answer.add(events)
    answer.add(parser.finish())
    for call in answer.calls:
        assert call.complete is not None
        if call.complete:
            assert isinstance(json.loads(call.arguments), dict)
    return answer


def parsed(family: str, pieces: Iterable[str], tools: Sequence[Tool] = TOOLS) -> Answer:
    return fed(tool_parser(tool_family(family), tools), pieces)


def cut(text: str, places: Iterable[int]) -> list[str]:
    """The text in pieces, some of them empty."""
    cuts = sorted(place % (len(text) + 1) for place in places)
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


places = st.lists(st.integers(0, 10_000), max_size=12)
