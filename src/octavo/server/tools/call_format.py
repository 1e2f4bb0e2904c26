"""What a constrained answer must look like in a family's format, as plain data.

A grammar builder turns it into a constraint. The text that it describes is

    begin call (separator call)* end        with min_calls <= number of calls <= max_calls
    call = begin arguments end              of one of the patterns

and parses, with the family's parser, to exactly these calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from octavo.server.tools.tool import NamedTool, Tool, ToolChoice


class ArgumentSyntax(StrEnum):
    """How the arguments object is written between `begin` and `end` of a call."""

    JSON = "json"
    """A JSON object that follows the schema."""
    PYTHON = "python"
    """Keyword arguments, `key=value, key=value`; values are Python literals."""
    XML = "xml"
    """For each argument `<parameter=KEY>\\nVALUE\\n</parameter>\\n`; strings bare, other values as JSON."""
    ESCAPED = "escaped"
    """`key:value,key:value`; strings between two `quote`s, unescaped; lists in `[]` and objects in `{}` of the same;
    other values as JSON."""


@dataclass(frozen=True, slots=True)
class CallPattern:
    """One way to write a call."""

    name: str
    """The tool."""
    begin: str
    """Literal text before the arguments."""
    end: str
    """Literal text behind them."""
    schema: Mapping[str, Any]
    """JSON Schema of the arguments object; empty: any object."""
    syntax: ArgumentSyntax = ArgumentSyntax.JSON
    quote: str = ""
    """With ArgumentSyntax.ESCAPED: what stands around strings, and cannot stand in them."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The calls of one answer."""

    trigger: str
    """With `auto`: where this text appears in a free answer, the rest of a call must follow. Empty: calls of this
    family are not told from content by a marker, so they are constrained only if they are required."""
    begin: str
    separator: str
    end: str
    calls: tuple[CallPattern, ...]
    min_calls: int
    max_calls: int | None
    """None: any number."""


def call_format(
    patterns: Sequence[CallPattern],
    choice: ToolChoice,
    *,
    parallel: bool,
    begin: str = "",
    separator: str = "",
    end: str = "",
    trigger: str = "",
) -> CallFormat:
    """A format for what a request chooses among its tools.

    Args:
        patterns: one for each tool.
        choice: `auto` allows no call, `required` asks for one at least, a named tool for exactly one of it.
        parallel: more than one call is allowed.
    """
    named = isinstance(choice, NamedTool)
    return CallFormat(
        trigger=trigger,
        begin=begin,
        separator=separator,
        end=end,
        calls=tuple(p for p in patterns if not isinstance(choice, NamedTool) or p.name == choice.name),
        min_calls=0 if choice == "auto" else 1,
        max_calls=None if parallel and not named else 1,
    )


def json_pattern(tool: Tool, before_name: str, after_name: str, end: str) -> CallPattern:
    """A call whose name stands as bare text, or inside quotes that the texts around it bring, and whose arguments are
    JSON."""
    return CallPattern(tool.name, f"{before_name}{tool.name}{after_name}", end, tool.parameters)
