"""From the events of an answer to items of a response. A streamed response tells of each step; a whole one is what they
add up to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.server.tools.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)

Event = dict[str, Any]
Logprob = dict[str, Any]


class TextItem:
    """An item with one part of text: a message, or reasoning."""

    def __init__(self, item_id: str, kind: "TextKind") -> None:
        self.kind = kind
        self.item: dict[str, Any] = {"id": item_id, "status": "in_progress", **kind.item, "content": []}
        self._part: dict[str, Any] = {**kind.part, "text": ""}
        self._text: list[str] = []
        self._logprobs: list[Logprob] = []

    def begin(self) -> Iterator[Event]:
        """The events behind the item's own."""
        yield self._event("content_part.added", {"part": {**self._part}})

    def add(self, text: str, logprobs: Sequence[Logprob]) -> Iterator[Event]:
        """More text."""
        self._text.append(text)
        self._logprobs += logprobs
        yield self._event(f"{self.kind.name}.delta", {"delta": text, **self._scored(logprobs)})

    def end(self) -> Iterator[Event]:
        """The text is whole."""
        self._part |= {"text": "".join(self._text), **self._scored(self._logprobs)}
        self.item["content"] = [self._part]
        yield self._event(f"{self.kind.name}.done", {"text": self._part["text"], **self._scored(self._logprobs)})
        yield self._event("content_part.done", {"part": self._part})

    def _scored(self, logprobs: Sequence[Logprob]) -> dict[str, list[Logprob]]:
        return {"logprobs": list(logprobs)} if self.kind.has_logprobs else {}

    def _event(self, name: str, facts: dict[str, Any]) -> Event:
        return {"type": f"response.{name}", "item_id": self.item["id"], "content_index": 0, **facts}


@dataclass(frozen=True)
class TextKind:
    """How one kind of text is spelled."""

    prefix: str
    """Of item ids."""
    name: str
    """Of its events."""
    item: dict[str, Any]
    part: dict[str, Any]
    has_logprobs: bool = False


MESSAGE = TextKind(
    "msg",
    "output_text",
    {"type": "message", "role": "assistant"},
    {"type": "output_text", "annotations": [], "logprobs": []},
    has_logprobs=True,
)
REASONING = TextKind("rs", "reasoning_text", {"type": "reasoning", "summary": []}, {"type": "reasoning_text"})


class CallItem:
    """A call of a function."""

    def __init__(self, item_id: str, call: ToolCallStart) -> None:
        self.item: dict[str, Any] = {
            "id": item_id,
            "type": "function_call",
            "status": "in_progress",
            "call_id": call.id,
            "name": call.name,
            "arguments": "",
        }
        self._arguments: list[str] = []

    def begin(self) -> Iterator[Event]:
        """Nothing stands between the item's own event and its arguments."""
        return iter(())

    def add(self, text: str) -> Iterator[Event]:
        """More of the arguments."""
        self._arguments.append(text)
        yield self._event("delta", {"delta": text})

    def end(self) -> Iterator[Event]:
        """Nothing more comes."""
        self.item["arguments"] = "".join(self._arguments)
        yield self._event("done", {"name": self.item["name"], "arguments": self.item["arguments"]})

    def _event(self, name: str, facts: dict[str, Any]) -> Event:
        return {"type": f"response.function_call_arguments.{name}", "item_id": self.item["id"], **facts}


@dataclass
class OutputWriter:
    """The items of one response, in the making."""

    make_id: Callable[[str], str]
    """An item's id, for a prefix such as `msg`."""
    items: list[dict[str, Any]] = field(default_factory=list)
    """Those that have begun; the last one may be open."""
    _open: TextItem | CallItem | None = None

    def write(self, event: AnswerEvent, logprobs: Sequence[Logprob] = ()) -> Iterator[Event]:
        """What an event of the answer makes known.

        Args:
            logprobs: of the tokens of a `ContentDelta`.
        """
        match event:
            case ContentDelta(text):
                yield from self._text(MESSAGE, text, logprobs)
            case ReasoningDelta(text):
                yield from self._text(REASONING, text, ())
            case ToolCallStart():
                yield from self._begin(CallItem(self.make_id("fc"), event))
            case ToolCallArgumentsDelta(text=text):
                yield from self._numbered(self._call().add(text))
            case ToolCallEnd(complete=complete):
                self._call()
                yield from self._end("completed" if complete else "incomplete")

    def finish(self, *, cut_off: bool) -> Iterator[Event]:
        """The answer is over. One without any text or call is an empty message.

        Args:
            cut_off: it ended at its greatest length, so its last item may not be whole.
        """
        if not self.items:
            yield from self._begin(TextItem(self.make_id("msg"), MESSAGE))
        yield from self._end("incomplete" if cut_off else "completed")

    def _text(self, kind: TextKind, text: str, logprobs: Sequence[Logprob]) -> Iterator[Event]:
        if not (isinstance(self._open, TextItem) and self._open.kind is kind):
            yield from self._begin(TextItem(self.make_id(kind.prefix), kind))
        if isinstance(self._open, TextItem):
            yield from self._numbered(self._open.add(text, logprobs))

    def _call(self) -> CallItem:
        if not isinstance(self._open, CallItem):
            raise TypeError("arguments without a call: the parser's events are out of order")
        return self._open

    def _begin(self, item: TextItem | CallItem) -> Iterator[Event]:
        yield from self._end("completed")
        self._open = item
        self.items.append(item.item)
        yield self._place({"type": "response.output_item.added", "item": {**item.item}})
        yield from self._numbered(item.begin())

    def _end(self, status: str) -> Iterator[Event]:
        item, self._open = self._open, None
        if item is None:
            return
        yield from self._numbered(item.end())
        item.item["status"] = status
        yield self._place({"type": "response.output_item.done", "item": {**item.item}})

    def _numbered(self, events: Iterator[Event]) -> Iterator[Event]:
        return map(self._place, events)

    def _place(self, event: Event) -> Event:
        return {**event, "output_index": len(self.items) - 1}
