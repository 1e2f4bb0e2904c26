"""What a response may call, and what its text must look like: checked, and as the conversation takes it."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.server.conversation.conversation import ToolUse
from octavo.server.fields import StrictModel, tag_by_type
from octavo.server.openai.tool_body import FunctionDefinition, tool_use
from octavo.server.openai.tool_body import FunctionTool as ChatTool
from octavo.server.tools.tool import NamedTool


class FunctionTool(FunctionDefinition):
    """A function of the client's: a definition that is not wrapped in anything."""

    type: Literal["function"]
    allowed_callers: None = None
    defer_loading: Literal[False] | None = None
    output_schema: None = None

    def wrapped(self) -> ChatTool:
        """The same tool as chat completions spell it."""
        definition = FunctionDefinition(
            name=self.name, description=self.description, parameters=self.parameters, strict=self.strict
        )
        return ChatTool(type="function", function=definition)

    def echo(self) -> dict[str, Any]:
        """The tool as the response repeats it."""
        return self.model_dump(include={"type", "name", "description", "parameters", "strict"})


def _refuse_tool(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None:
        raise ValueError("must be a tool such as {'type': 'function', 'name': '...', 'parameters': {...}}")
    raise ValueError(f"there is no hosted tool {str(kind)[:100]!r}; only tools of type 'function' are supported")


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("[function]")] | Annotated[Any, BeforeValidator(_refuse_tool), Tag("[other]")],
    Discriminator(tag_by_type("function")),
]


class NamedFunction(StrictModel):
    """One function, by name."""

    type: Literal["function"]
    name: str


Choice = Literal["none", "auto", "required"] | NamedFunction


def _choice(value: Any) -> Any:
    """
    Raises:
        ValueError: a hosted tool is chosen, or nothing that can be.
    """
    if isinstance(value, str) or value is None:
        return value
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "function":
        known = "none, auto, required, or {'type': 'function', 'name': '...'}"
        raise ValueError(f"{str(kind)[:100]!r} cannot be chosen; known are {known}")
    return value


ToolChoiceField = Annotated[Choice | None, BeforeValidator(_choice)]


def tool_use_of(tools: Sequence[FunctionTool], choice: Choice | None, parallel: bool | None) -> ToolUse:
    """What the model may call.

    Raises:
        InvalidRequestError: as of chat completions.
    """
    chosen = NamedTool(choice.name) if isinstance(choice, NamedFunction) else choice
    return tool_use([tool.wrapped() for tool in tools], chosen, parallel)


class PlainFormat(StrictModel):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(StrictModel):
    """A JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(StrictModel):
    """A JSON value that keeps to a schema."""

    type: Literal["json_schema"]
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


def _refuse_format(value: Any) -> Any:
    raise ValueError("must be an object whose type is text, json_object or json_schema")


TextFormat = Annotated[
    Annotated[PlainFormat, Tag("[text]")]
    | Annotated[JsonObjectFormat, Tag("[json_object]")]
    | Annotated[JsonSchemaFormat, Tag("[json_schema]")]
    | Annotated[Any, BeforeValidator(_refuse_format), Tag("[other]")],
    Discriminator(tag_by_type("text", "json_object", "json_schema")),
]


class TextOptions(StrictModel):
    """What the text must be like."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


def shape_of(text: TextOptions | None) -> StructuredSpec | None:
    """The constraint that a format asks for; None: any text will do."""
    match None if text is None else text.format:
        case JsonObjectFormat():
            return StructuredSpec(kind=StructuredKind.JSON_OBJECT, field="text.format")
        case JsonSchemaFormat(schema_=schema, strict=strict):
            source = json.dumps(schema)
            return StructuredSpec(
                kind=StructuredKind.JSON_SCHEMA, source=source, strict=bool(strict), field="text.format"
            )
    return None
