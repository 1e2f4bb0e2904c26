"""An argument written as bare text, typed by the tool's schema."""

from collections.abc import Mapping
from typing import Any

from octavo.server.tools.json_text import json_value, quoted
from octavo.server.tools.reader import MalformedCallError, Sink, read_whole, result_of

_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_KINDS = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}
_ANY_BUT_STRING = frozenset(("object", "array", "boolean", "null", "number"))


class ArgumentText:
    """Passes an argument on as JSON.

    - A string by its schema, or an argument that the tool does not declare: the text is the string, passed on as it
      comes.
    - Any other type: the text is JSON if it is of a type that the schema allows (also Python's True, False, None), else
      a string. It is passed on when it is whole. Where the schema says nothing of the type, any but string will do.
    """

    def __init__(self, schema: Any, sink: Sink) -> None:
        """
        Args:
            schema: JSON Schema of the argument; None if there is none.
            sink: takes the JSON.
        """
        self._sink = sink
        self._types = frozenset(("string",)) if schema is None else schema_types(schema)
        self._is_string = self._types == {"string"}
        self._is_at_start = True
        self._held: list[str] = []
        """Of a string: a line break that may be the last one; else: everything."""
        if self._is_string:
            sink('"')

    def add(self, text: str) -> None:
        """More of the text."""
        if self._is_at_start:
            text = text.removeprefix("\n")
            self._is_at_start = False
        if not self._is_string:
            self._held.append(text)
            return
        text = "".join((*self._held, text))
        self._held = ["\n"] if text.endswith("\n") else []
        self._sink(quoted(text.removesuffix("\n"))[1:-1])

    def finish(self) -> None:
        """The text is whole."""
        if self._is_string:
            self._sink('"')
        else:
            text = "".join(self._held).removesuffix("\n")
            self._sink(typed(text, self._types))


def schema_types(schema: Any) -> frozenset[str]:
    """The JSON types that a schema allows, as far as its own keywords say; `integer` counts as `number`. All but string
    where they say nothing."""
    if not isinstance(schema, Mapping):
        return _ANY_BUT_STRING
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list | tuple) else []
    found = frozenset("number" if name == "integer" else str(name) for name in names)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if not found and isinstance(values, list | tuple):
        found = frozenset(_type_of(value) for value in values)
    for keyword in ("anyOf", "oneOf") if not found else ():
        choices = schema.get(keyword)
        if isinstance(choices, list | tuple):
            found = found.union(*map(schema_types, choices))
    return found or _ANY_BUT_STRING


def typed(text: str, types: frozenset[str]) -> str:
    """A whole text as JSON of one of these types; as a string where it is none."""
    bare = text.strip()
    bare = _PYTHON_WORDS.get(bare, bare)
    pieces: list[str] = []
    reader = read_whole(bare)
    try:
        result_of(json_value(reader, pieces.append))
        is_whole = not result_of(reader.peek())
    except MalformedCallError:
        is_whole = False
    return "".join(pieces) if is_whole and _KINDS.get(bare[0], "number") in types else quoted(text)


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds = ((str, "string"), (int | float, "number"), (Mapping, "object"), (list | tuple, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")
