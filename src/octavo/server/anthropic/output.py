"""From the events of an answer to content blocks. A streamed message tells of each step; a whole one is what they add
up to."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from octavo.server.anthropic.partial_json import object_so_far
from octavo.server.tools.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)

Event = dict[str, Any]


@dataclass
class _OpenBlock:
    """A block in the making."""

    block: dict[str, Any]
    whole: str
    """Field of the block that its deltas add up to."""
    delta_type: str
    delta_field: str
    pieces: list[str] = field(default_factory=list)

    def add(self, text: str) -> dict[str, Any]:
        """The delta for more text."""
        self.pieces.append(text)
        return {"type": self.delta_type, self.delta_field: text}

    def close(self) -> None:
        """Nothing more comes."""
        text = "".join(self.pieces)
        self.block[self.whole] = object_so_far(text) if self.whole == "input" else text


@dataclass
class BlockWriter:
    """The blocks of one message, in the making."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    """Those that have begun; the last one may be open."""
    num_calls: int = 0
    """Whole ones."""
    _open: _OpenBlock | None = None

    def write(self, event: AnswerEvent) -> Iterator[Event]:
        """What an event of the answer makes known."""
        match event:
            case ContentDelta(text):
                yield from self._add("text", text)
            case ReasoningDelta(text):
                yield from self._add("thinking", text)
            case ToolCallStart():
                block: dict[str, Any] = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                yield from self._begin(_OpenBlock(block, "input", "input_json_delta", "partial_json"))
            case ToolCallArgumentsDelta(text=text):
                yield from self._add("tool_use", text)
            case ToolCallEnd(complete=complete):
                self.num_calls += complete
                yield from self.finish()

    def finish(self) -> Iterator[Event]:
        """Ends the block that is open, if one is."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()
            yield {"type": "content_block_stop", "index": len(self.blocks) - 1}

    def _add(self, kind: str, text: str) -> Iterator[Event]:
        if self._open is None or self._open.block["type"] != kind:
            yield from self._begin(_new_text(kind))
        if self._open is not None:
            yield {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": self._open.add(text)}

    def _begin(self, opened: _OpenBlock) -> Iterator[Event]:
        yield from self.finish()
        self._open = opened
        self.blocks.append(opened.block)
        yield {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": {**opened.block}}


def _new_text(kind: str) -> _OpenBlock:
    if kind == "thinking":
        return _OpenBlock(
            {"type": "thinking", "thinking": "", "signature": ""}, "thinking", "thinking_delta", "thinking"
        )
    return _OpenBlock({"type": "text", "text": "", "citations": None}, "text", "text_delta", "text")
