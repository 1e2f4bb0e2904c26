"""OpenAI's rules for `strict: true`: an answer then has every property and no other.
(https://platform.openai.com/docs/guides/structured-outputs, supported schemas)"""

from typing import Any

from octavo.decoding.structured.json_schema.document import Schema
from octavo.decoding.structured.problem import ShapeError


def check_strict_root(schema: Schema) -> None:
    """
    Raises:
        ShapeError: the outermost schema is no object.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ShapeError('strict: the outermost schema must have "type": "object"', "$")


def check_strict(node: dict[str, Any], place: str) -> None:
    """
    Raises:
        ShapeError: an object that allows other properties, or one that is not required.
    """
    if node.get("type") != "object" and "properties" not in node:
        return
    if node.get("additionalProperties") is not False:
        raise ShapeError("strict: an object must have additionalProperties: false", place)
    required = node.get("required", [])
    missing = next((name for name in node.get("properties", {}) if name not in required), None)
    if missing is not None:
        raise ShapeError(f"strict: the property {missing!r} must be listed in required", place)
