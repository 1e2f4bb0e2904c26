"""From items to the messages that chat templates read."""

from collections.abc import Sequence
from typing import Any

from octavo.server.json_object import object_of
from octavo.server.responses.items import (
    AnyItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    MessageItem,
    ReasoningItem,
)

Message = dict[str, Any]


def messages_of(items: Sequence[AnyItem], instructions: str | None) -> list[Message]:
    """The conversation of some items, as the same conversation in chat messages reads: what a model thought, wrote and
    called in one turn are several items and one message.

    Args:
        instructions: a system message before everything else.
    """
    messages: list[Message] = [] if instructions is None else [{"role": "system", "content": instructions}]
    for item in items:
        match item:
            case MessageItem(role="assistant"):
                _add_text(messages, item)
            case MessageItem():
                role = "system" if item.role == "developer" else item.role
                messages.append({"role": role, "content": item.content})
            case ReasoningItem():
                _add_reasoning(messages, item)
            case FunctionCallItem():
                _add_call(messages, item)
            case FunctionCallOutputItem():
                messages.append(_result(item))
    return messages


def _add_text(messages: list[Message], item: MessageItem) -> None:
    """Joins a turn that has no text yet; two texts stay two messages, as they would in a chat."""
    turn = _open_turn(messages)
    if turn is None or turn["content"]:
        messages.append({"role": "assistant", "content": item.content})
    else:
        turn["content"] = item.content


def _add_reasoning(messages: list[Message], item: ReasoningItem) -> None:
    """Begins a turn: a model thinks first."""
    text = "".join(part.text for part in item.content or item.summary)
    messages.append({"role": "assistant", "content": "", "reasoning": text})


def _add_call(messages: list[Message], item: FunctionCallItem) -> None:
    turn = _open_turn(messages)
    if turn is None:
        turn = {"role": "assistant", "content": ""}
        messages.append(turn)
    function = {"name": item.name, "arguments": object_of(item.arguments or "{}")}
    turn.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})


def _result(item: FunctionCallOutputItem) -> Message:
    message: Message = {"role": "tool", "content": item.output, "tool_call_id": item.call_id}
    return message if item.name is None else message | {"name": item.name}


def _open_turn(messages: list[Message]) -> Message | None:
    """The assistant's turn that the conversation ends with."""
    return messages[-1] if messages and messages[-1]["role"] == "assistant" else None
