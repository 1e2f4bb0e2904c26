"""Arguments that are not one JSON object: each declared property by itself, in the schema's order."""

import re
from dataclasses import dataclass
from typing import Any

from octavo.decoding.structured import lark
from octavo.decoding.structured.json_schema.compile import BackendSchema
from octavo.decoding.structured.json_schema.document import Schema
from octavo.decoding.structured.problem import ShapeError
from octavo.decoding.structured.regex_dialect import ANYTHING, quoted

_OF_WHOLE_OBJECT = ("type", "properties", "required", "additionalProperties", "x-guidance", "$defs")
_PYTHON_KEY = re.compile(r"[^\W\d]\w*", re.ASCII)
_XML_KEY = re.compile(r"[^<>\n\"'\s][^<>\n]*")
_XML_TAGS = ("</parameter>", "<parameter=", "</function>")


@dataclass(frozen=True)
class _Argument:
    name: str
    schema: dict[str, Any]
    """With the definitions and the layout of the whole."""
    is_required: bool


def python_arguments(name: str, schema: BackendSchema, rules: list[str]) -> str:
    """`key=value, key=value`. JSON's values are Python's, or read as such: `true` for True."""
    arguments = _declared(schema)
    for at, argument in enumerate(arguments):
        _require_key(argument, _PYTHON_KEY)
        rules.append(f"{name}_{at}: {lark.spelled(f'{argument.name}=', {})} {lark.one_of_json(argument.schema)}")
    _add_list(name, arguments, rules)
    return f"{name}_first_0"


def xml_arguments(name: str, schema: BackendSchema, rules: list[str]) -> str:
    """`<parameter=KEY>`, the value between two line breaks, `</parameter>` and a line break."""
    parts: list[str] = []
    for at, argument in enumerate(_declared(schema)):
        _require_key(argument, _XML_KEY)
        begin, end = lark.spelled(f"<parameter={argument.name}>\n", {}), "\n</parameter>\n"
        rules.append(f"{name}_{at}: {begin} {_xml_value(f'{name}_{at}_value', argument, end, rules)}")
        parts.append(f"{name}_{at}{'' if argument.is_required else '?'}")
    rules.append(f"{name}: {' '.join(parts) or lark.NOTHING}")
    return name


def _declared(schema: BackendSchema) -> list[_Argument]:
    """The arguments of an object schema that says all in `properties`. No others are written."""
    body = schema.body
    if body.get("type", "object") != "object":
        raise ShapeError("the schema of arguments must be one of objects", "$.type")
    other = next((keyword for keyword in body if keyword not in _OF_WHOLE_OBJECT), None)
    if other is not None:
        raise ShapeError(f"{other!r}: calls in this format need arguments that are declared in properties", "$")
    properties: dict[str, Schema] = body.get("properties", {})
    required: list[str] = body.get("required", [])
    shared: dict[str, Any] = {key: body[key] for key in ("x-guidance", "$defs") if key in body}
    found: list[_Argument] = []
    for name in dict.fromkeys((*properties, *required)):
        value = properties.get(name, body.get("additionalProperties", True))
        if value is not False:
            found.append(_Argument(name, {**shared, **({} if value is True else value)}, name in required))
        elif name in required:
            raise ShapeError("no value can satisfy the schema", f"$.properties.{name}")
    return found


def _require_key(argument: _Argument, allowed: re.Pattern[str]) -> None:
    if not allowed.fullmatch(argument.name):
        raise ShapeError(f"an argument of this name cannot be written in this format: {argument.name!r:.80}")


def _add_list(name: str, arguments: list[_Argument], rules: list[str]) -> None:
    """Rules for the arguments from each one on: `first`, where none stands before it, and `next`, behind a comma."""
    comma = lark.spelled(", ", {})
    rules.append(f"{name}_first_{len(arguments)}: {lark.NOTHING}")
    rules.append(f"{name}_next_{len(arguments)}: {lark.NOTHING}")
    for at in reversed(range(len(arguments))):
        one, rest = f"{name}_{at}", f"{name}_next_{at + 1}"
        is_required = arguments[at].is_required
        rules.append(f"{name}_first_{at}: {one} {rest}{'' if is_required else f' | {name}_first_{at + 1}'}")
        rules.append(f"{name}_next_{at}: {comma} {one} {rest}{'' if is_required else f' | {rest}'}")


def _xml_value(name: str, argument: _Argument, end: str, rules: list[str]) -> str:
    """A value and the end behind it. Strings are bare; their tags are found in any text, so no text may hold one."""
    schema = argument.schema
    if schema.get("type") == "string" and set(schema) <= {"type", "enum", "const", "x-guidance", "$defs"}:
        words = schema.get("enum", [schema["const"]] if "const" in schema else None)
        rules.append(f"{name}[suffix={lark.word(end)}]: {name.upper()}")
        rules.append(f"{name.upper()}: {_bare_text(words)}")
        return name
    if schema.get("type") in ("integer", "number", "boolean", "null"):
        rules.append(f"{name}: {lark.one_of_json(schema)}")
        return f"{name} {lark.spelled(end, {})}"
    problem = "of an argument in this format may be a string (free, or of an enum), a number, a boolean or null"
    raise ShapeError(f"the type {problem}; other values may hold text that ends them", f"$.properties.{argument.name}")


def _bare_text(words: list[Any] | None) -> str:
    tags = "|".join("".join(map(quoted, tag)) for tag in _XML_TAGS)
    free = f"{lark.regex(ANYTHING)} & ~{lark.regex(f'{ANYTHING}(?:{tags}){ANYTHING}')}"
    if words is None:
        return free
    texts = [word for word in words if isinstance(word, str) and not any(tag in word for tag in _XML_TAGS)]
    if not texts:
        raise ShapeError("none of the values of enum can be written in this format")
    return " | ".join(map(lark.word, texts))
