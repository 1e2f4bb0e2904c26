"""Checks of keywords' values."""

from decimal import Decimal
from typing import Any

from octavo.decoding.structured.limits import MAX_DECIMALS, MAX_EXACT_INT, MAX_LENGTH
from octavo.decoding.structured.problem import ShapeError
from octavo.decoding.structured.regex_dialect import is_writable

TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")


def length(value: object, place: str) -> int:
    """A number of characters, items or properties."""
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
    if not (is_whole and 0 <= int(value) <= MAX_LENGTH):  # type: ignore[call-overload]
        raise ShapeError(f"{value!r:.40} must be an integer from 0 to {MAX_LENGTH}", place)
    return int(value)  # type: ignore[call-overload, no-any-return]


def exact_number(value: object, place: str) -> int | float:
    """A number that float64 and its decimal spelling agree on."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ShapeError(f"{value!r:.40} must be a number", place)
    is_exact = abs(value) <= MAX_EXACT_INT and (isinstance(value, int) or _is_short(value))
    if not is_exact:
        problem = f"numbers must lie within +-{MAX_EXACT_INT} and have at most {MAX_DECIMALS} digits"
        raise ShapeError(f"{value!r:.40}: {problem}", place)
    return value


def decimal(value: int | float) -> Decimal:
    """The number as it is spelled."""
    return Decimal(repr(value))


def texts(value: object, place: str) -> list[str]:
    """A list of different texts."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ShapeError("must be a list of texts", place)
    if len(set(value)) < len(value):
        raise ShapeError("holds a text twice", place)
    return value


def named(value: object, place: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise ShapeError("must be an object", place)
    return value


def listed(value: object, place: str) -> list[Any]:
    """A list that is not empty."""
    if not isinstance(value, list) or not value:
        raise ShapeError("must be a list that is not empty", place)
    return value


def type_names(value: object, place: str) -> str | list[str]:
    """One type, or a list of different ones."""
    names = [value] if isinstance(value, str) else texts(value, place)
    unknown = next((name for name in names if name not in TYPES), None)
    if unknown is not None or not names:
        raise ShapeError(f"{unknown!r:.40}: the types are {', '.join(TYPES)}", place)
    return value if isinstance(value, str) else names


def literal(value: object, place: str) -> None:
    """A value of `enum` or `const` that can be written out exactly."""
    if isinstance(value, str):
        odd = next((char for char in value if not is_writable(char)), None)
        if odd is not None:
            raise ShapeError(f"the character U+{ord(odd):04X} in a text of enum or const is not supported", place)
    elif isinstance(value, list):
        for item in value:
            literal(item, place)
    elif isinstance(value, dict):
        for key, item in value.items():
            literal(key, place)
            literal(item, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        exact_number(value, place)


def _is_short(value: float) -> bool:
    exponent = decimal(value).as_tuple().exponent
    return float(f"{value:.{MAX_DECIMALS}g}") == value and isinstance(exponent, int) and exponent >= -MAX_DECIMALS
