"""Content blocks: what messages, system prompts and tool results are made of. Checked here, translated in `history`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from octavo.server.fields import StrictModel, tag_by_type
from octavo.server.json_object import JsonObject

CacheControl = dict[str, Any] | None
"""Where a prompt may be cached: here prefixes are cached everywhere, so the mark changes nothing."""


class TextBlock(StrictModel):
    """A text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl = None
    citations: list[Any] | None = None
    """Where an answer took something from; templates know nothing of it."""


class ToolUseBlock(StrictModel):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: JsonObject
    cache_control: CacheControl = None
    caller: Any = None
    toolset_name: None = None


class ThinkingBlock(StrictModel):
    """What the model thought. Whether a template shows it again is the template's choice."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""
    """Whatever stands there: nothing is signed here."""


def _refuse(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None:
        raise ValueError("must be a block such as {'type': 'text', 'text': '...'}")
    raise ValueError(f"blocks of type {str(kind)[:100]!r} are not supported: this model takes text only")


Refused = Annotated[Any, BeforeValidator(_refuse), Tag("[other]")]


def _is_text(value: Any) -> str:
    return "[string]" if isinstance(value, str) else "[blocks]"


TextOnly = Annotated[Annotated[TextBlock, Tag("[text]")] | Refused, Discriminator(tag_by_type("text"))]
Text = Annotated[Annotated[str, Tag("[string]")] | Annotated[list[TextOnly], Tag("[blocks]")], Discriminator(_is_text)]
"""A text, or blocks of text."""


class ToolResultBlock(StrictModel):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Text | None = None
    is_error: bool | None = None
    cache_control: CacheControl = None
    toolset_name: None = None


AnyBlock = TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock
Block = Annotated[
    Annotated[TextBlock, Tag("[text]")]
    | Annotated[ToolUseBlock, Tag("[tool_use]")]
    | Annotated[ToolResultBlock, Tag("[tool_result]")]
    | Annotated[ThinkingBlock, Tag("[thinking]")]
    | Refused,
    Discriminator(tag_by_type("text", "tool_use", "tool_result", "thinking")),
]
Content = Annotated[Annotated[str, Tag("[string]")] | Annotated[list[Block], Tag("[blocks]")], Discriminator(_is_text)]


class InputMessage(StrictModel):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content


class ClientTool(StrictModel):
    """A function of the client's."""

    name: str
    input_schema: JsonObject
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: CacheControl = None
    defer_loading: Literal[False] | None = None
    eager_input_streaming: bool | None = None
    """Arguments are always streamed as they come."""
    input_examples: list[dict[str, Any]] | None = Field(default=None, max_length=0)
    allowed_callers: list[Literal["direct"]] | None = None


def _refuse_tool(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    raise ValueError(
        f"there is no server tool {str(kind)[:100]!r}; only tools of the client, without a type, are supported"
    )


def _tool_tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "[custom]" if not isinstance(value, dict) or kind in (None, "custom") else "[other]"


AnyTool = Annotated[
    Annotated[ClientTool, Tag("[custom]")] | Annotated[Any, BeforeValidator(_refuse_tool), Tag("[other]")],
    Discriminator(_tool_tag),
]
