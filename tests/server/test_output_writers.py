"""Both spellings of an answer, for any answer: each tells all of it, in order, and the steps add up to the whole."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from octavo.server.anthropic.output import BlockWriter
from octavo.server.responses.output import OutputWriter
from octavo.server.tools.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)

TEXT = st.text(min_size=1, max_size=4)
SAID = st.one_of(
    st.tuples(st.just("text"), st.lists(TEXT, min_size=1, max_size=3)),
    st.tuples(st.just("thought"), st.lists(TEXT, min_size=1, max_size=3)),
    st.tuples(st.just("call"), st.lists(st.sampled_from(['{"a"', ": 1", "}"]), max_size=3)),
    st.tuples(st.just("broken call"), st.lists(st.sampled_from(['{"a"', ": 1"]), max_size=2)),
)
Answer = list[tuple[str, list[str]]]
ANSWERS = st.lists(SAID, max_size=8)


def events_of(answer: Answer) -> Iterable[AnswerEvent]:
    """What a parser says of an answer."""
    num_calls = 0
    for kind, pieces in answer:
        match kind:
            case "text":
                yield from map(ContentDelta, pieces)
            case "thought":
                yield from map(ReasoningDelta, pieces)
            case _:
                yield ToolCallStart(num_calls, f"call_{num_calls}", "f")
                yield from (ToolCallArgumentsDelta(num_calls, piece) for piece in pieces)
                yield ToolCallEnd(num_calls, kind == "call")
                num_calls += 1


def parts_of(answer: Answer) -> list[tuple[str, str]]:
    """Kind and text of each part, with neighbours of one kind as one."""
    parts: list[tuple[str, str]] = []
    for kind, pieces in answer:
        text = "".join(pieces)
        if parts and parts[-1][0] == kind and kind in ("text", "thought"):
            parts[-1] = (kind, parts[-1][1] + text)
        else:
            parts.append((kind, text))
    return parts


ITEM_TYPES = {"text": "message", "thought": "reasoning", "call": "function_call", "broken call": "function_call"}
BLOCK_TYPES = {"text": "text", "thought": "thinking", "call": "tool_use", "broken call": "tool_use"}


@given(ANSWERS, st.booleans())
def test_items_and_their_events(answer: Answer, cut_off: bool) -> None:
    names = iter(range(1000))
    writer = OutputWriter(lambda prefix: f"{prefix}_{next(names)}")
    told: list[dict[str, Any]] = []
    for event in events_of(answer):
        told += writer.write(event)
    told += writer.finish(cut_off=cut_off)
    parts = parts_of(answer) or [("text", "")]
    assert [item["type"] for item in writer.items] == [ITEM_TYPES[kind] for kind, _ in parts]
    for index, ((kind, text), item) in enumerate(zip(parts, writer.items, strict=True)):
        mine = [event for event in told if event["output_index"] == index]
        assert mine[0]["type"] == "response.output_item.added"
        assert mine[-1] == {"type": "response.output_item.done", "item": item, "output_index": index}
        assert "".join(event["delta"] for event in mine if event["type"].endswith(".delta")) == text
        assert (item["arguments"] if "call" in kind else item["content"][0]["text"]) == text
        is_last = index == len(parts) - 1
        is_broken = kind == "broken call" or (cut_off and is_last and kind != "call")
        assert item["status"] == ("incomplete" if is_broken else "completed")
        assert mine[0]["item"]["id"] == item["id"]
    assert [event["output_index"] for event in told] == sorted(event["output_index"] for event in told)
    assert len({item["id"] for item in writer.items}) == len(writer.items)


@given(ANSWERS)
def test_blocks_and_their_events(answer: Answer) -> None:
    writer = BlockWriter()
    told: list[dict[str, Any]] = []
    for event in events_of(answer):
        told += writer.write(event)
    told += writer.finish()
    parts = parts_of(answer)
    assert [block["type"] for block in writer.blocks] == [BLOCK_TYPES[kind] for kind, _ in parts]
    for index, ((kind, text), block) in enumerate(zip(parts, writer.blocks, strict=True)):
        start, *deltas, stop = [event for event in told if event["index"] == index]
        assert (start["type"], stop["type"]) == ("content_block_start", "content_block_stop")
        field = {"text": "text", "thought": "thinking"}.get(kind, "partial_json")
        assert "".join(event["delta"][field] for event in deltas) == text
        if "call" not in kind:
            assert block[field] == text
        else:
            assert isinstance(block["input"], dict)
    assert [event["index"] for event in told] == sorted(event["index"] for event in told)
    assert writer.num_calls == sum(kind == "call" for kind, _ in answer)
