"""From messages of blocks to the messages that chat templates read."""

from collections.abc import Sequence
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.anthropic.blocks import (
    AnyBlock,
    InputMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)

Message = dict[str, Any]
TextContent = str | list[dict[str, str]]


def messages_of(system: str | Sequence[TextBlock] | None, messages: Sequence[InputMessage]) -> list[Message]:
    """The conversation as the same conversation in chat messages reads.

    Raises:
        InvalidRequestError: a block stands where its kind makes no sense.
    """
    if not messages:
        raise InvalidRequestError("messages", [], "must hold at least one message")
    plain: list[Message] = [] if not system else [{"role": "system", "content": _text(system)}]
    for index, message in enumerate(messages):
        place = f"messages[{index}].content"
        if isinstance(message.content, str):
            plain.append({"role": message.role, "content": message.content})
        elif message.role == "assistant":
            plain.append(_turn(message.content, place))
        else:
            plain += _input(message.role, message.content, place)
    return plain


def _text(content: str | Sequence[TextBlock]) -> TextContent:
    return content if isinstance(content, str) else [{"type": "text", "text": block.text} for block in content]


def _turn(blocks: Sequence[AnyBlock], place: str) -> Message:
    """What an assistant thought, wrote and called."""
    texts: list[TextBlock] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        match block:
            case TextBlock():
                texts.append(block)
            case ThinkingBlock():
                thoughts.append(block.thinking)
            case ToolUseBlock():
                function = {"name": block.name, "arguments": block.input}
                calls.append({"id": block.id, "type": "function", "function": function})
            case _:
                raise InvalidRequestError(f"{place}[{index}]", block.type, "only a user's message can hold it")
    turn: Message = {"role": "assistant", "content": _text(texts) or ""}
    turn |= {"reasoning": "".join(thoughts)} if thoughts else {}
    return turn | ({"tool_calls": calls} if calls else {})


def _input(role: str, blocks: Sequence[AnyBlock], place: str) -> list[Message]:
    """What a user says, with the results of calls as messages of their own, in the order of the blocks."""
    plain: list[Message] = []
    for index, block in enumerate(blocks):
        match block:
            case TextBlock():
                if not plain or plain[-1]["role"] != role:
                    plain.append({"role": role, "content": []})
                plain[-1]["content"] += _text([block])
            case ToolResultBlock() if role == "user":
                plain.append(_result(block))
            case _:
                raise InvalidRequestError(f"{place}[{index}]", block.type, f"a {role}'s message cannot hold it")
    if not plain:
        raise InvalidRequestError(place, [], "must hold at least one block")
    return plain


def _result(block: ToolResultBlock) -> Message:
    content = _text(block.content or "")
    if block.is_error:  # templates have no place for it
        content = [
            {"type": "text", "text": "Error: "},
            *([{"type": "text", "text": content}] if isinstance(content, str) else content),
        ]
    return {"role": "tool", "content": content, "tool_call_id": block.tool_use_id}
