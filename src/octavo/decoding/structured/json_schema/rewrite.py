"""A user's schema in, a schema out that holds only what the backend enforces as the standard means it."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from octavo.decoding.structured.json_schema import values
from octavo.decoding.structured.json_schema.document import Schema
from octavo.decoding.structured.json_schema.formats import FORMATS
from octavo.decoding.structured.json_schema.keywords import ANNOTATIONS, REFUSED
from octavo.decoding.structured.json_schema.productive import REFERENCE
from octavo.decoding.structured.json_schema.strict import check_strict
from octavo.decoding.structured.limits import (
    MAX_COMMON_MULTIPLE,
    MAX_DEFINITIONS,
    MAX_ENUM_VALUES,
    MAX_MULTIPLE_OF,
    MAX_OPTIONAL_PROPERTIES,
    MAX_PATTERN_PROPERTIES,
)
from octavo.decoding.structured.problem import ShapeError
from octavo.decoding.structured.regex_dialect import search_in_json

Node = dict[str, Any]

_LARGEST_BELOW_ZERO = -1e-9
"""Of the numbers that are written where zero is the bound and excluded."""


@dataclass
class Rewriter:
    """Rewrites one document.

    References are followed when they are met, so definitions that nothing refers to do not matter.
    """

    document: Schema
    strict: bool = False
    """OpenAI's rules for strict schemas are checked."""
    closed_objects: bool = False
    """Objects that do not speak of additional properties allow none."""
    definitions: dict[str, Schema] = field(default_factory=dict)
    """The definitions reached so far, by their new names."""
    one_of_places: list[str] = field(default_factory=list)
    """Where `oneOf` stands."""
    _name_by_pointer: dict[str, str] = field(default_factory=dict)
    _to_do: deque[tuple[str, object, str]] = field(default_factory=deque)
    """Definitions met and not read yet: new name, what stands there, its place."""
    _multiples: set[Decimal] = field(default_factory=set)

    def rewrite(self) -> Schema:
        """The outermost schema; `definitions` are then complete.

        Raises:
            ShapeError: a keyword that is unknown, not supported or wrongly used; names it and the place.
        """
        document = self.document
        if isinstance(document, dict) and "$id" in document:
            document = {keyword: value for keyword, value in document.items() if keyword != "$id"}
        schema = self.schema(document, "$")
        while self._to_do:  # not where they are met: chains of references may be long
            name, node, place = self._to_do.popleft()
            self.definitions[name] = self.schema(node, place)
        self._check_multiples()
        return schema

    def schema(self, node: object, place: str) -> Schema:
        """A schema at a place of the document."""
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            raise ShapeError("a schema is an object, or true or false", place)
        if self.strict:
            check_strict(node, place)
        out: Node = {}
        for keyword, value in node.items():
            if keyword in ENFORCED:
                ENFORCED[keyword](self, out, node, value, _child(place, keyword))
            elif keyword not in ANNOTATIONS and not keyword.startswith("x-"):
                raise _refusal(keyword, place)
        if self.closed_objects and "properties" in node:
            out.setdefault("additionalProperties", False)
        return out

    def reference(self, pointer: object, place: str) -> str:
        """The new reference for a `$ref`."""
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            problem = f"{pointer!r:.80}: only references within the schema are followed, as JSON pointers: #/$defs/NAME"
            raise ShapeError(problem, place)
        if pointer not in self._name_by_pointer:
            name = self._name_by_pointer[pointer] = f"d{len(self._name_by_pointer)}"
            if len(self._name_by_pointer) > MAX_DEFINITIONS:
                raise ShapeError(f"more than {MAX_DEFINITIONS} places are referred to", place)
            self._to_do.append((name, self._target(pointer, place), f"$ -> {pointer}"))
        return REFERENCE + self._name_by_pointer[pointer]

    def add_multiple(self, value: Decimal) -> None:
        """Notes a `multipleOf`."""
        self._multiples.add(value)

    def _target(self, pointer: str, place: str) -> object:
        """RFC 6901."""
        node: Any = self.document
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                key_or_index: Any = int(key) if key.isdecimal() and int(key) < len(node) else None
            else:
                key_or_index = key if isinstance(node, dict) and key in node else None
            if key_or_index is None:
                raise ShapeError(f"{pointer!r:.80}: there is nothing at this place of the schema", place)
            node = node[key_or_index]
        if isinstance(node, dict) and node is self.document:
            return {keyword: value for keyword, value in node.items() if keyword != "$id"}
        return node

    def _check_multiples(self) -> None:
        decimals = max((-int(value.as_tuple().exponent) for value in self._multiples), default=0)
        common = math.lcm(*(int(value.scaleb(max(0, decimals))) for value in self._multiples))
        if common > MAX_COMMON_MULTIPLE:
            problem = f"{common}, the least common multiple of all multipleOf, is more than {MAX_COMMON_MULTIPLE}"
            raise ShapeError(problem, "$")


def _refusal(keyword: str, place: str) -> ShapeError:
    if keyword in REFUSED:
        return ShapeError(f"the keyword {keyword!r} is not supported: {REFUSED[keyword]}", place)
    return ShapeError(f"{keyword!r:.80} is no keyword of JSON Schema", place)


def _child(place: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{place}[{key}]"
    return f"{place}.{key}" if key.replace("$", "").isidentifier() else f"{place}[{key!r:.80}]"


def _type(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    out["type"] = values.type_names(value, place)


def _enum(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    if len(values.listed(value, place)) > MAX_ENUM_VALUES:
        raise ShapeError(f"{len(value)} values; at most {MAX_ENUM_VALUES} are supported", place)
    for at, item in enumerate(value):
        values.literal(item, _child(place, at))
    out["enum"] = value


def _const(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    values.literal(value, place)
    out["const"] = value


def _length(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    out[_keyword(place)] = values.length(value, place)


def _bound(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    out[_keyword(place)] = values.exact_number(value, place)


def _exclusive_maximum(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    """Below zero, the library takes `-0` for less than zero."""
    most = values.exact_number(value, place)
    if most != 0:
        out["exclusiveMaximum"] = most
    else:
        out["maximum"] = min(_LARGEST_BELOW_ZERO, out.get("maximum", 0))


def _maximum(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    most = values.exact_number(value, place)
    out["maximum"] = min(most, out.get("maximum", most))


def _multiple_of(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    number = values.exact_number(value, place)
    digits = values.decimal(number).normalize()
    if number <= 0 or int(digits.scaleb(max(0, -int(digits.as_tuple().exponent)))) > MAX_MULTIPLE_OF:
        problem = f"must be positive and at most {MAX_MULTIPLE_OF}, its decimal point left out"
        raise ShapeError(f"{number!r} {problem}", place)
    rewriter.add_multiple(digits)
    out["multipleOf"] = number


def _pattern(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    _add_pattern(out, _expression(value, place))


def _format(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    if value not in FORMATS:
        raise ShapeError(f"{value!r:.80}: the formats enforced are {', '.join(FORMATS)}; or use pattern", place)
    _add_pattern(out, FORMATS[value])


def _add_pattern(out: Node, expression: str) -> None:
    anchored = f"^(?:{expression})$"
    if "pattern" in out:
        out.setdefault("allOf", []).append({"pattern": anchored})
    else:
        out["pattern"] = anchored


def _expression(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise ShapeError("must be a regular expression, as text", place)
    try:
        return search_in_json(value)
    except ShapeError as error:
        raise ShapeError(error.problem, place) from None


def _properties(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    named = values.named(value, place)
    num_optional = len(named.keys() - set(values.texts(node.get("required", []), place)))
    if num_optional > MAX_OPTIONAL_PROPERTIES:
        problem = f"{num_optional} are not required; at most {MAX_OPTIONAL_PROPERTIES} such properties are supported"
        raise ShapeError(problem, place)
    out["properties"] = {name: rewriter.schema(schema, _child(place, name)) for name, schema in named.items()}


def _pattern_properties(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    if len(values.named(value, place)) > MAX_PATTERN_PROPERTIES:
        raise ShapeError(f"{len(value)} patterns; at most {MAX_PATTERN_PROPERTIES} are supported", place)
    out["patternProperties"] = {
        f"^(?:{_expression(pattern, _child(place, pattern))})$": rewriter.schema(schema, _child(place, pattern))
        for pattern, schema in value.items()
    }


def _required(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    out["required"] = values.texts(value, place)


def _min_properties(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    """Keys beyond the declared ones may come twice, and count once when they are read."""
    least = values.length(value, place)
    if least <= len(values.texts(node.get("required", []), place)):
        return
    if least > 1:
        raise ShapeError(f"{least}: more than 1 is supported only where so many properties are required", place)
    out["minProperties"] = least


def _max_properties(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    most = values.length(value, place)
    declared = values.named(node.get("properties", {}), place)
    is_closed = node.get("additionalProperties") is False and "patternProperties" not in node
    if is_closed and most >= len(declared):
        return
    if most > 1 and not set(declared) <= set(node.get("required", [])):
        raise ShapeError(f"{most}: more than 1 is supported only where all properties are required", place)
    out["maxProperties"] = most


def _schema(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    out[_keyword(place)] = rewriter.schema(value, place)


def _items(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    if isinstance(value, list):
        raise ShapeError("a list of schemas, as before draft 2020-12; use prefixItems", place)
    _schema(rewriter, out, node, value, place)


def _schemas(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    listed = values.listed(value, place)
    found = [rewriter.schema(schema, _child(place, at)) for at, schema in enumerate(listed)]
    out[_keyword(place)] = [*out.get(_keyword(place), []), *found]


def _one_of(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    rewriter.one_of_places.append(place)
    _schemas(rewriter, out, node, value, place)


def _unique_items(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    if not isinstance(value, bool):
        raise ShapeError("must be true or false", place)
    most = node.get("maxItems", 2)
    if value and not (isinstance(most, int) and most <= 1):
        raise ShapeError("the keyword 'uniqueItems' is not supported: a grammar cannot compare items", place)


def _ref(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    out["$ref"] = rewriter.reference(value, place)


def _definitions(rewriter: Rewriter, out: Node, node: Node, value: Any, place: str) -> None:
    values.named(value, place)


def _keyword(place: str) -> str:
    return place.rpartition(".")[2]


Handler = Callable[[Rewriter, Node, Node, Any, str], None]
"""handler(rewriter, the schema written, the schema read, the keyword's value, its place)"""

ENFORCED: dict[str, Handler] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minLength": _length,
    "maxLength": _length,
    "pattern": _pattern,
    "format": _format,
    "minimum": _bound,
    "maximum": _maximum,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _exclusive_maximum,
    "multipleOf": _multiple_of,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _schema,
    "required": _required,
    "minProperties": _min_properties,
    "maxProperties": _max_properties,
    "items": _items,
    "prefixItems": _schemas,
    "minItems": _length,
    "maxItems": _length,
    "uniqueItems": _unique_items,
    "allOf": _schemas,
    "anyOf": _schemas,
    "oneOf": _one_of,
    "$ref": _ref,
    "$defs": _definitions,
    "definitions": _definitions,
}
"""The keywords that are enforced."""
