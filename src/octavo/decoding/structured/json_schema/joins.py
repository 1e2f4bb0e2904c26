"""Counts the patterns that meet in one text when schemas are joined."""

from collections.abc import Iterator
from typing import Any

from octavo.decoding.structured.json_schema.document import Schema
from octavo.decoding.structured.json_schema.productive import REFERENCE
from octavo.decoding.structured.limits import MAX_JOINED_PATTERNS
from octavo.decoding.structured.problem import ShapeError


def check_joins(root: Schema, definitions: dict[str, Schema]) -> None:
    """Checks a rewritten schema.

    Raises:
        ShapeError: more patterns meet than the backend joins in reasonable time.
    """
    known: dict[str, int] = {}
    for name in reversed(definitions):  # those met last are what the others are made of
        known[name] = _most_joined(definitions[name], known)
    for schema in (root, *definitions.values()):
        for part in _all_parts(schema):
            count = _most_joined(part, known)
            if count > MAX_JOINED_PATTERNS:
                problem = f"{count} patterns and formats meet in one text; at most {MAX_JOINED_PATTERNS} are supported"
                raise ShapeError(problem, "$")


def _most_joined(schema: Schema, known: dict[str, int]) -> int:
    """Patterns that a text of this schema may have to match; those of definitions not known yet are left out."""
    if isinstance(schema, bool):
        return 0
    count = int("pattern" in schema) + known.get(schema.get("$ref", "").removeprefix(REFERENCE), 0)
    count += sum(_most_joined(part, known) for part in schema.get("allOf", ()))
    for keyword in ("anyOf", "oneOf"):
        count += max((_most_joined(part, known) for part in schema.get(keyword, ())), default=0)
    return count


def _all_parts(node: Any) -> Iterator[Schema]:
    """The schema and whatever in it may be one; values of `enum` and `const` are harmless."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _all_parts(value)
    elif isinstance(node, list):
        for item in node:
            yield from _all_parts(item)
