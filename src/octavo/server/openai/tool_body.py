"""Tools and their choice in a chat request."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from octavo.errors import InvalidRequestError
from octavo.server.conversation.conversation import ToolUse
from octavo.server.fields import StrictModel
from octavo.server.json_object import JsonObject
from octavo.server.tools.tool import NamedTool, Tool, ToolChoice

MAX_TOOLS = 1024
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")


def _function_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("must be 1 to 128 letters, digits, '_', '-' or '.'")
    return name


class FunctionDefinition(StrictModel):
    """A function that the model may call."""

    name: Annotated[str, AfterValidator(_function_name)]
    description: str | None = None
    parameters: JsonObject | None = None
    """JSON Schema of the arguments; absent: none are taken."""
    strict: bool | None = None


class FunctionTool(StrictModel):
    """The one kind of tool."""

    type: Literal["function"]
    function: FunctionDefinition

    def plain(self) -> Tool:
        """As the rest of the server sees it."""
        function = self.function
        return Tool(
            name=function.name,
            parameters=NO_ARGUMENTS if function.parameters is None else function.parameters,
            strict=bool(function.strict),
            description=function.description or "",
        )


NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
"""What a function without `parameters` takes, as OpenAI has it."""


def _choice(value: Any) -> Any:
    """`none`, `auto`, `required`, or one function."""
    match value:
        case None | "none" | "auto" | "required":
            return value
        case {"type": "function", "function": {"name": str(name), **others}, **beside} if not {*others, *beside}:
            return NamedTool(name)
    raise ValueError("must be 'none', 'auto', 'required' or {'type': 'function', 'function': {'name': '...'}}")


_CHOICE_SCHEMA = {"anyOf": [{"enum": ["none", "auto", "required", None]}, {"type": "object"}]}
ChoiceField = Annotated[Literal["none"] | ToolChoice | None, BeforeValidator(_choice), WithJsonSchema(_CHOICE_SCHEMA)]


def tool_use(tools: Sequence[FunctionTool] | None, choice: Any, parallel: bool | None) -> ToolUse:
    """What the model may call.

    Raises:
        InvalidRequestError: too many tools, or two of one name.
    """
    plain = tuple(tool.plain() for tool in tools or ())
    if len(plain) > MAX_TOOLS:
        raise InvalidRequestError("tools", len(plain), f"must hold at most {MAX_TOOLS} tools")
    (name, times), *_ = [*Counter(tool.name for tool in plain).most_common(1), ("", 0)]
    if times > 1:
        raise InvalidRequestError("tools", name, "two tools have this name")
    return ToolUse(tools=plain, choice="auto" if choice is None else choice, parallel=parallel is not False)
