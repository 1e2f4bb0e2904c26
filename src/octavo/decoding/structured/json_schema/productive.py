"""Takes out of a schema what no finite value satisfies: `{"$ref": "#"}`, a list node that requires a next one.

A grammar would follow it for ever: no token is wrong, and none ends the answer. Works on rewritten schemas, where every
reference is to `#/$defs/NAME`.
"""

from collections.abc import Callable, Set
from typing import Any

from octavo.decoding.structured.json_schema.document import Schema

REFERENCE = "#/$defs/"


def prune(schema: Schema, definitions: dict[str, Schema]) -> tuple[Schema, dict[str, Schema]]:
    """The schema and its definitions with unsatisfiable parts replaced by false."""
    alive = _alive(definitions)
    pruned = {name: _pruned(body, alive) for name, body in definitions.items()}
    return _pruned(schema, alive), pruned


def _alive(definitions: dict[str, Schema]) -> frozenset[str]:
    """Names of the definitions that a finite value satisfies: the least fixed point. Those met last come first, since
    the others are made of them."""
    alive: set[str] = set()
    while True:
        num_before = len(alive)
        for name in reversed(definitions):
            if name not in alive and _is_productive(definitions[name], alive):
                alive.add(name)
        if len(alive) == num_before:
            return frozenset(alive)


def _is_productive(schema: Schema, alive: Set[str]) -> bool:
    """Whether a finite value satisfies it, given the definitions known to have one. Errs to the side of yes."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and schema["$ref"].removeprefix(REFERENCE) not in alive:
        return False
    if not all(_is_productive(part, alive) for part in schema.get("allOf", ())):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(_is_productive(part, alive) for part in schema[keyword]):
            return False
    types = schema.get("type")
    if types in ("object", ["object"]):
        return all(_is_productive(_property(schema, name), alive) for name in schema.get("required", ()))
    if types in ("array", ["array"]):
        return all(_is_productive(item, alive) for item in _needed_items(schema))
    return True


def _property(schema: dict[str, Any], name: str) -> Schema:
    properties: dict[str, Schema] = schema.get("properties", {})
    return properties.get(name, schema.get("additionalProperties", True) if "patternProperties" not in schema else True)


def _needed_items(schema: dict[str, Any]) -> list[Schema]:
    first: list[Schema] = schema.get("prefixItems", [])
    needed: int = schema.get("minItems", 0)
    rest: list[Schema] = [schema.get("items", True)] if needed > len(first) else []
    return first[:needed] + rest


def _pruned(schema: Schema, alive: frozenset[str]) -> Schema:
    if isinstance(schema, bool):
        return schema
    if not _is_productive(schema, alive):
        return False
    return {keyword: _PRUNED.get(keyword, _as_it_is)(value, alive) for keyword, value in schema.items()}


def _as_it_is(value: Any, alive: frozenset[str]) -> Any:
    return value


def _each(value: Any, alive: frozenset[str]) -> Any:
    return [_pruned(part, alive) for part in value]


def _each_named(value: Any, alive: frozenset[str]) -> Any:
    return {name: _pruned(part, alive) for name, part in value.items()}


_PRUNED: dict[str, Callable[[Any, frozenset[str]], Any]] = {
    "allOf": _each,
    "anyOf": _each,
    "oneOf": _each,
    "prefixItems": _each,
    "properties": _each_named,
    "patternProperties": _each_named,
    "items": _pruned,
    "additionalProperties": _pruned,
}
"""Keyword -> how the schemas in its value are pruned."""
