"""Collects the events of one answer."""

from collections.abc import Callable

from octavo.server.tools.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)

WHITE_SPACE = " \t\r\n"
MakeId = Callable[[int], str]
"""The id of the call at an index."""


class AnswerEvents:
    """What a parser has found out since the last `drain`.

    White space that lays out calls is no content: what stands before a call is dropped, and what stands behind calls if
    no text follows or no text came before. Until that is known white space is held back.
    """

    def __init__(self, make_id: MakeId | None = None, max_calls: int | None = None) -> None:
        """
        Args:
            make_id: makes the ids of calls.
            max_calls: further calls are dropped, for `parallel_tool_calls: false`.
        """
        self._make_id = make_id
        self._max_calls = max_calls
        self._events: list[AnswerEvent] = []
        self._pieces: list[str] = []
        """Texts that make up the delta in the making."""
        self._delta: type[ContentDelta | ReasoningDelta | ToolCallArgumentsDelta] | None = None
        self._space: list[str] = []
        """White space at the end of the content so far."""
        self._has_content = False
        self._num_calls = 0
        self.call_is_open = False
        """Between the start and the end of a call."""

    def content(self, text: str) -> None:
        """More content."""
        if self._num_calls and not self._has_content:
            text = text.lstrip(WHITE_SPACE)
        visible = text.rstrip(WHITE_SPACE)
        if visible:
            self._add(ContentDelta, [*self._space, visible])
            self._space.clear()
            self._has_content = True
        if len(visible) < len(text):
            self._space.append(text[len(visible) :])

    def plain_content(self, text: str) -> None:
        """More content of an answer in which no calls are looked for: white space is as good as other text."""
        if text:
            self._add(ContentDelta, [text])

    def reasoning(self, text: str) -> None:
        """More reasoning."""
        if text:
            self._add(ReasoningDelta, [text])

    def start(self, name: str) -> None:
        """A call begins."""
        self._space.clear()
        self._num_calls += 1
        self.call_is_open = True
        if not self._is_surplus():
            self._flush()
            call_id = None if self._make_id is None else self._make_id(self._index)
            self._events.append(ToolCallStart(self._index, call_id, name))

    def arguments(self, text: str) -> None:
        """More of the open call's arguments."""
        if text and not self._is_surplus():
            self._add(ToolCallArgumentsDelta, [text])

    def end(self, *, complete: bool) -> None:
        """The open call ends."""
        self.call_is_open = False
        if not self._is_surplus():
            self._flush()
            self._events.append(ToolCallEnd(self._index, complete))

    def finish(self) -> None:
        """The answer is over: white space at its end is content if there was no call."""
        if self._space and not self._num_calls:
            self._add(ContentDelta, self._space)
        self._space.clear()

    def drain(self) -> list[AnswerEvent]:
        """Hands out the events; adjacent deltas of one kind are one event."""
        self._flush()
        events, self._events = self._events, []
        return events

    @property
    def _index(self) -> int:
        return self._num_calls - 1

    def _is_surplus(self) -> bool:
        return self._max_calls is not None and self._num_calls > self._max_calls

    def _add(self, kind: type[ContentDelta | ReasoningDelta | ToolCallArgumentsDelta], pieces: list[str]) -> None:
        if kind is not self._delta:
            self._flush()
            self._delta = kind
        self._pieces += pieces

    def _flush(self) -> None:
        text = "".join(self._pieces)
        if self._delta is ToolCallArgumentsDelta:
            self._events.append(ToolCallArgumentsDelta(self._index, text))
        elif self._delta is not None:
            self._events.append(ContentDelta(text) if self._delta is ContentDelta else ReasoningDelta(text))
        self._pieces.clear()
        self._delta = None
