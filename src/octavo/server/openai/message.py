"""Chat messages: checked and brought to the plain form that chat templates read."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from octavo.server.fields import StrictModel
from octavo.server.json_object import finite, object_of


def _text_content(value: Any) -> Any:
    """A text, or a list of text parts.

    Raises:
        ValueError: a part that is not text (images, audio, files), or malformed.
    """
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of parts such as {'type': 'text', 'text': '...'}")
    return [_text_part(part) for part in value]


def _text_part(part: Any) -> dict[str, str]:
    """A text, also one that an assistant refused with."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind is not None and kind not in ("text", "refusal"):
        raise ValueError(f"this model takes text only, no part of type {kind!r}")
    if kind is None or not isinstance(part.get(kind), str) or set(part) - {"type", kind, "cache_control"}:
        raise ValueError("each part must be {'type': 'text', 'text': '...'}")
    return {"type": "text", "text": part[kind]}


def _arguments(value: Any) -> Any:
    """Tool call arguments as the object that templates print: from a JSON text, an object, or nothing.

    Raises:
        ValueError: a text that is not a JSON object.
    """
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        return object_of(value)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return finite(value)


MAX_MESSAGES = 4096
Content = Annotated[
    str | list[dict[str, str]] | None,
    BeforeValidator(_text_content),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]}),
]


class FunctionCall(StrictModel):
    """Which function an assistant called, with what."""

    name: str
    arguments: Annotated[dict[str, Any], BeforeValidator(_arguments)] = Field(default_factory=dict)


class ToolCall(StrictModel):
    """One call in an assistant's message."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None


class ChatMessage(StrictModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    """What the assistant thought, as our own answers have it."""
    reasoning_content: str | None = None
    """An older name of it."""
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    def plain(self) -> dict[str, Any]:
        """The message as templates read it: a developer is a system, absent things are left out, no call list is
        empty, an assistant that only calls or thinks has empty content.

        Raises:
            ValueError: there is neither content nor a call.
        """
        reasoning = self.reasoning if self.reasoning is not None else self.reasoning_content
        says_something = self.role == "assistant" and (self.tool_calls or self.refusal or reasoning)
        if self.content is None and not says_something:
            raise ValueError(f"a {self.role} message needs content")
        content = self.content if self.content is not None else self.refusal or ""
        message: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": content}
        if reasoning:
            message["reasoning"] = reasoning
        if self.name is not None:
            message["name"] = self.name
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump(exclude_none=True, exclude={"index"}) for call in self.tool_calls]
        return message


Messages = Annotated[list[ChatMessage], Field(max_length=MAX_MESSAGES)]
"""A conversation."""
