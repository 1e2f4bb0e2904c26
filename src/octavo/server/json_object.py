"""JSON objects of any shape that clients send, as they are or as a text: tool definitions, arguments of calls,
variables of chat templates. They keep the rules of a body: finite numbers, valid Unicode, bounded nesting."""

import math
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import from_json


def object_of(text: str) -> dict[str, Any]:
    """The object that a text spells. Read by the parser of bodies, so that a text in a body may nest no deeper than a
    body: what is deeper cannot be walked by whoever reads it next.

    Raises:
        ValueError: it spells no object, or one that a body could not hold.
    """
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object, as text")
    return finite(value)


def finite(value: dict[str, Any]) -> dict[str, Any]:
    """The object itself.

    Raises:
        ValueError: a number in it is too large to be one, such as 1e999.
    """
    if not _is_finite(value):
        raise ValueError("must hold finite numbers only")
    return value


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list) or all(map(_is_finite, value))


JsonObject = Annotated[dict[str, Any], AfterValidator(finite)]
"""A field that holds an object of any shape."""
