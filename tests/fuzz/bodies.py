"""From the server's own description to requests: a small valid body per endpoint, and every field of it by its path."""

import itertools
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

SMALL_VALUES: dict[str, Any] = {
    "prompt": "the cat",
    "messages": [{"role": "user", "content": "the cat"}],
    "input": "the cat",
    "tokens": [5, 6],
    "lease_s": 5.0,
    "model": "tiny",
    "request_id": "nobody-has-this-id",
    "url": "/v1/completions",
    "body": {"prompt": "the cat"},
    "max_tokens": 3,
    "max_output_tokens": 16,
}
"""What a required field holds where nothing else is asked; `max_*` are always given, so that answers stay short."""
ALWAYS = ("max_tokens", "max_output_tokens")
ONE_OF_SEVERAL = {"/tokenize": "prompt", "/v1/abort": "request_id"}
"""Endpoints that read one of several fields, none of which is required by itself."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Operation:
    """One endpoint that reads a body."""

    method: str
    path: str
    schema: dict[str, Any]
    body: dict[str, Any]
    """Valid and small."""


def operations(description: dict[str, Any]) -> list[Operation]:
    """All endpoints with a body.

    Raises:
        KeyError: an endpoint requires a field that SMALL_VALUES does not know: add it there.
    """
    found = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                found.append(Operation(method.upper(), path, schema, _small_body(path, schema)))
    return found


def _small_body(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    chosen = [ONE_OF_SEVERAL[path]] if path in ONE_OF_SEVERAL else []
    wanted = [*schema.get("required", ()), *chosen, *(name for name in ALWAYS if name in schema["properties"])]
    return {name: deepcopy(SMALL_VALUES[name]) for name in wanted}


def field_paths(schema: dict[str, Any], definitions: dict[str, Any], depth: int = 3) -> Iterator[Path]:
    """Every field, those of nested objects and of list items included, down to a depth."""
    for name, inner in schema.get("properties", {}).items():
        yield (name,)
        if depth > 1:
            for further in _inside(inner, definitions, depth - 1):
                yield (name, *further)


def _inside(schema: dict[str, Any], definitions: dict[str, Any], depth: int) -> Iterator[Path]:
    if "$ref" in schema:
        yield from field_paths(definitions[schema["$ref"].rpartition("/")[2]], definitions, depth)
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _inside(option, definitions, depth)
    if isinstance(schema.get("items"), dict):
        yield (0,)
        yield from ((0, *further) for further in _inside(schema["items"], definitions, depth))


def with_value(body: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of the body with another value at a path; what lies on the way is made."""
    changed: dict[str, Any] = deepcopy(body)
    place: Any = changed
    for part, following in itertools.pairwise(path):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(part, int):
            if not place:
                place.append(empty)
        elif not isinstance(place.get(part), type(empty)):
            place[part] = empty
        place = place[part]
    last = path[-1]
    if isinstance(last, int) and not place:
        place.append(value)
    else:
        place[last] = value
    return changed
