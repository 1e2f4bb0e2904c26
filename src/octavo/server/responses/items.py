"""Items: what the input of a response is made of, and what it gave before. Checked here, translated in `history`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from octavo.server.fields import StrictModel
from octavo.server.json_object import object_of

Status = Literal["in_progress", "completed", "incomplete"]
TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Type of a content part -> the field that holds its text."""
PART_EXTRAS = frozenset({"type", "annotations", "logprobs", "parsed", "prompt_cache_breakpoint"})
"""What else a part may hold: what answers had, and what the stock client's `parse` adds to them."""


def _text_content(value: Any) -> Any:
    """A text, or a list of text parts, brought to the form of chat messages.

    Raises:
        ValueError: a part that is not text (images, audio, files), or malformed.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("must be a text or a list of parts such as {'type': 'input_text', 'text': '...'}")
    return [_text_part(part) for part in value]


def _text_part(part: Any) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind is not None and kind not in TEXT_PARTS:
        raise ValueError(f"this model takes text only, no part of type {kind!r}")
    field = TEXT_PARTS.get(str(kind))
    if field is None or not isinstance(part.get(field), str) or set(part) - PART_EXTRAS - {field}:
        raise ValueError("each part must be {'type': 'input_text', 'text': '...'}")
    return {"type": "text", "text": part[field]}


Content = Annotated[
    str | list[dict[str, str]],
    BeforeValidator(_text_content),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}),
]


def _arguments(value: Any) -> Any:
    """
    Raises:
        ValueError: no text of a JSON object.
    """
    if not isinstance(value, str):
        raise ValueError("must be a JSON object, as text")
    if value:
        object_of(value)
    return value


class MessageItem(StrictModel):
    """A message of anybody."""

    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: Content
    id: str | None = None
    status: Status | None = None
    phase: str | None = None
    """How a model marked its message; templates know nothing of it."""


class FunctionCallItem(StrictModel):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: Annotated[str, BeforeValidator(_arguments)]
    id: str | None = None
    status: Status | None = None
    caller: None = None
    namespace: None = None
    parsed_arguments: Any = None
    """Added by the stock client's `parse`; the text counts."""


class FunctionCallOutputItem(StrictModel):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content
    name: str | None = None
    id: str | None = None
    status: Status | None = None
    caller: None = None
    namespace: None = None


class ReasoningText(StrictModel):
    """A part of what a model thought, or of a summary of it."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(StrictModel):
    """What the model thought before an answer. Whether a template shows it again is the template's choice."""

    type: Literal["reasoning"]
    summary: list[ReasoningText] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: None = None
    id: str | None = None
    status: Status | None = None


def _refuse(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None:
        raise ValueError("must be an item such as {'role': 'user', 'content': '...'}")
    known = "message, function_call, function_call_output, reasoning"
    if kind == "item_reference":
        raise ValueError("items are not found by reference: send the item, or use previous_response_id")
    raise ValueError(f"items of type {str(kind)[:100]!r} are not supported; known are {known}")


def _tag(value: Any) -> str:
    """Tags are no identifiers, so that they are left out of a field's path in errors."""
    if isinstance(value, StrictModel):
        return f"[{value.type}]" if isinstance(value, MessageItem | KnownItems) else "[other]"
    if not isinstance(value, dict):
        return "[other]"
    kind = value.get("type", "message" if "role" in value else None)
    return f"[{kind}]" if kind in ("message", "function_call", "function_call_output", "reasoning") else "[other]"


KnownItems = FunctionCallItem | FunctionCallOutputItem | ReasoningItem
Item = Annotated[
    Annotated[MessageItem, Tag("[message]")]
    | Annotated[FunctionCallItem, Tag("[function_call]")]
    | Annotated[FunctionCallOutputItem, Tag("[function_call_output]")]
    | Annotated[ReasoningItem, Tag("[reasoning]")]
    | Annotated[Any, BeforeValidator(_refuse), Tag("[other]")],
    Discriminator(_tag),
]
"""One item of an input."""

AnyItem = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem
"""What an `Item` is once it is checked."""
