"""How an answer's text is taken apart into content, reasoning and calls."""

import secrets
import string
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.server.reasoning.answer import answer_parser
from octavo.server.reasoning.family import ReasoningFamily
from octavo.server.reasoning.registry import NO_REASONING
from octavo.server.tools.events import AnswerEvent, ContentDelta, ReasoningDelta
from octavo.server.tools.family import ToolFamily
from octavo.server.tools.tool import Tool

_LETTERS = string.ascii_letters + string.digits


class EventParser(Protocol):
    """Takes the text of one answer apart."""

    def feed(self, text: str) -> list[AnswerEvent]:
        """Takes more text; returns what it made certain."""
        ...

    def finish(self) -> list[AnswerEvent]:
        """The answer is over, by itself or cut off."""
        ...

    def is_reasoning(self, at: int) -> bool | None:
        """Whether a character of the text is reasoning, markers included; None while that is not certain."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the answers to one request are read."""

    reasoning: ReasoningFamily = NO_REASONING
    opened: str = ""
    """The marker with which the prompt ends, so that answers begin inside reasoning; empty if there is none."""
    include_reasoning: bool = True
    family: ToolFamily | None = None
    """None: no calls are looked for."""
    tools: tuple[Tool, ...] = ()
    parallel: bool = True
    lead: str = ""
    """Content that stands before the answer, such as the message that this goes on with."""

    @property
    def is_plain(self) -> bool:
        """All of the text is content, so nothing needs to be looked for in it."""
        return self.family is None and self.reasoning is NO_REASONING

    def parser(self) -> EventParser:
        """A parser for one answer."""
        if self.is_plain:
            return PlainText()
        parser = answer_parser(
            self.reasoning, self.family, self.tools, opened=self.opened, parallel=self.parallel, make_id=self._call_id
        )
        return parser if self.include_reasoning else WithoutReasoning(parser)

    def _call_id(self, index: int) -> str:
        return call_id(None if self.family is None else self.family.id_length)


PLAIN = Reading()
"""All is content."""


def call_id(length: int | None) -> str:
    """A new id for a call; `length` letters and digits for families whose chat template insists."""
    if length is None:
        return f"call_{uuid.uuid4().hex[:24]}"
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


class PlainText:
    """The parser of a text that is all content."""

    def feed(self, text: str) -> list[AnswerEvent]:
        """See EventParser."""
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[AnswerEvent]:
        """See EventParser."""
        return []

    def is_reasoning(self, at: int) -> bool | None:
        """See EventParser."""
        return False


class WithoutReasoning:
    """A parser that keeps to itself what the model thinks."""

    def __init__(self, parser: EventParser) -> None:
        self._parser = parser

    def feed(self, text: str) -> list[AnswerEvent]:
        """See EventParser."""
        return _without_reasoning(self._parser.feed(text))

    def finish(self) -> list[AnswerEvent]:
        """See EventParser."""
        return _without_reasoning(self._parser.finish())

    def is_reasoning(self, at: int) -> bool | None:
        """See EventParser."""
        return self._parser.is_reasoning(at)


def _without_reasoning(events: list[AnswerEvent]) -> list[AnswerEvent]:
    return [event for event in events if not isinstance(event, ReasoningDelta)]


class ReasoningTokens:
    """Counts the tokens of an answer that are reasoning: those whose text begins in it."""

    def __init__(self, parser: EventParser) -> None:
        self.count = 0
        self._parser = parser
        self._uncertain: deque[int] = deque()

    def add(self, offsets: Sequence[int]) -> None:
        """More tokens, by where their text begins in the answer; to be called when the parser has been fed it."""
        self._uncertain += offsets
        while self._uncertain and (certain := self._parser.is_reasoning(self._uncertain[0])) is not None:
            self.count += certain
            self._uncertain.popleft()
