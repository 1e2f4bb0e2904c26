"""An assistant's message, out of the events that it is made of."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.server.tools.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)


@dataclass
class MadeCall:
    """One call, or what a piece holds of it."""

    index: int
    id: str | None = None
    """None: the call began before, so id and name are known."""
    name: str | None = None
    arguments: str = ""
    complete: bool = False
    """The arguments have ended, and are a JSON object."""


@dataclass
class AnswerMessage:
    """What some events add up to: all of an answer, or a part of it."""

    content: str = ""
    reasoning: str = ""
    calls: list[MadeCall] = field(default_factory=list)
    """In the order of their index."""

    def add(self, event: AnswerEvent) -> None:
        """The next event."""
        match event:
            case ContentDelta(text=text):
                self.content += text
            case ReasoningDelta(text=text):
                self.reasoning += text
            case ToolCallStart(index=index, id=call_id, name=name):
                self.calls.append(MadeCall(index, call_id, name))
            case ToolCallArgumentsDelta(index=index, text=text):
                self._call(index).arguments += text
            case ToolCallEnd(index=index, complete=complete):
                self._call(index).complete = complete

    def _call(self, index: int) -> MadeCall:
        """The call at an index; a new one if it began before these events."""
        if not self.calls or self.calls[-1].index != index:
            self.calls.append(MadeCall(index))
        return self.calls[-1]


def message_of(events: Iterable[AnswerEvent]) -> AnswerMessage:
    """What events add up to."""
    message = AnswerMessage()
    for event in events:
        message.add(event)
    return message
