"""A schema's text as JSON, within bounds."""

import json
from typing import Any

from octavo.decoding.structured.limits import MAX_SCHEMA_NESTING, MAX_SOURCE_BYTES
from octavo.decoding.structured.problem import ShapeError

Schema = dict[str, Any] | bool


def read(source: str) -> Schema:
    """The schema in a text.

    Raises:
        ShapeError: no JSON, too large or nested too deeply, or neither an object nor a truth value.
    """
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise ShapeError(f"the schema has more than {MAX_SOURCE_BYTES} bytes")
    try:
        document = json.loads(source, parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ShapeError(f"the schema is no JSON: {error}") from None
    _check_nesting(document)
    if not isinstance(document, dict | bool):
        raise ShapeError("a schema is an object, or true or false", "$")
    return document


def _check_nesting(document: object) -> None:
    level = [document]
    for _ in range(MAX_SCHEMA_NESTING + 1):
        objects = [node.values() for node in level if isinstance(node, dict)]
        lists = [node for node in level if isinstance(node, list)]
        level = [child for container in (*objects, *lists) for child in container]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ShapeError:
    return ShapeError(f"the schema nests deeper than {MAX_SCHEMA_NESTING} brackets; use $defs and $ref")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
