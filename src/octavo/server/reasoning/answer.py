"""One answer's text, taken apart: reasoning first, then content and calls."""

from collections.abc import Sequence

from octavo.server.reasoning.family import ReasoningFamily
from octavo.server.reasoning.part import ReasoningPart
from octavo.server.tools.answer_events import AnswerEvents, MakeId
from octavo.server.tools.events import AnswerEvent
from octavo.server.tools.family import ToolFamily, parser_into
from octavo.server.tools.parser import ToolParser
from octavo.server.tools.reader import TextReader
from octavo.server.tools.tool import Tool


class AnswerParser:
    """Reasoning, content and calls out of one answer's text, whatever the pieces it comes in. Calls are looked for in
    the content only: a model that thinks aloud about a call has not made it."""

    def __init__(self, reasoning: ReasoningFamily, opened: str, events: AnswerEvents, calls: ToolParser | None) -> None:
        """
        Args:
            reasoning: how the model marks it.
            opened: the marker that the prompt ends with, as `reasoning.opened_by(prompt)` tells.
            events: what `calls` reports to.
            calls: parses the content; None if no calls are looked for.
        """
        self._events = events
        self._calls = calls
        self._reader = TextReader()
        self._thoughts = ReasoningPart(events.reasoning)
        content = events.plain_content if calls is None else calls.push
        self._parsing = reasoning.separate(self._reader, self._thoughts, content, opened)
        next(self._parsing)

    def feed(self, text: str) -> list[AnswerEvent]:
        """Takes more text; returns what it made certain."""
        if text:
            self._reader.push(text)
            next(self._parsing)
        return self._events.drain()

    def is_reasoning(self, at: int) -> bool | None:
        """Whether a character of the answer's text is reasoning, markers included; None while that is not certain."""
        if at >= self._reader.position and not self._reader.is_closed:
            return None
        return self._thoughts.holds(at)

    def finish(self) -> list[AnswerEvent]:
        """The answer is over, by itself or cut off."""
        self._reader.close()
        next(self._parsing, None)
        if self._calls is not None:
            self._calls.close()
        return self._events.drain()


def answer_parser(
    reasoning: ReasoningFamily,
    family: ToolFamily | None,
    tools: Sequence[Tool] = (),
    *,
    opened: str = "",
    parallel: bool = True,
    make_id: MakeId | None = None,
) -> AnswerParser:
    """A parser for one answer.

    Args:
        reasoning: how the model marks reasoning; `NO_REASONING` if it does not.
        family: how it writes calls; None if no calls are looked for (no tools, or `tool_choice: none`).
        tools: what the request offers.
        opened: what `reasoning.opened_by(prompt)` says.
        parallel: False: calls after the first are dropped.
        make_id: gives each call its id.
    """
    events = AnswerEvents(make_id, max_calls=None if parallel else 1)
    calls = None if family is None else parser_into(events, family, tools)
    return AnswerParser(reasoning, opened, events, calls)
