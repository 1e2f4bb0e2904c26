"""Sizes of what a template's operators and methods are about to make, so that it can be refused before it is
made."""

import re
from collections.abc import Callable, Mapping
from string import Formatter
from types import BuiltinMethodType, MethodType
from typing import Any

from octavo.text.call_arguments import CallArguments
from octavo.text.template_budget import RenderBudget, TemplateLimitError

_MAX_BITS = 4096
"""Of an integer. Templates count messages; numbers that square themselves in a loop are an attack."""
_MAX_WIDTH_DIGITS = 4

_WIDE_PERCENT = re.compile(
    rf"%(?:\([^)]*\))?[-+ #0]*(?:\*|\d{{{_MAX_WIDTH_DIGITS + 1},}}|\d*\.(?:\*|\d{{{_MAX_WIDTH_DIGITS + 1},}}))"
)
_WIDE_FIELD = re.compile(rf"\d{{{_MAX_WIDTH_DIGITS + 1},}}|\{{")

INTERCEPTED = frozenset(("+", "*", "**", "%"))
"""The binary operators whose result can be much larger than what goes in."""


def charge_operator(budget: RenderBudget, operator: str, left: Any, right: Any) -> None:
    """Raises TemplateLimitError if `left operator right` is too large for the budget."""
    _OPERATORS[operator](budget, left, right)


def charge_call(budget: RenderBudget, called: Any, arguments: tuple[Any, ...]) -> None:
    """Raises TemplateLimitError if a method of a string would make a text that is too large for the
    budget."""
    owner = called.__self__ if isinstance(called, BuiltinMethodType | MethodType) else None
    if not isinstance(owner, str | bytes):
        return
    budget.charge(len(owner))
    size = _METHODS.get(called.__name__)
    if size is not None:
        budget.charge(size(owner, arguments))


def check_percent_format(text: str) -> None:
    """Raises TemplateLimitError if a `%` format pads to more than four digits' worth of columns."""
    if _WIDE_PERCENT.search(text):
        raise TemplateLimitError("it formats a value into a field of 10000 columns or more")


def check_brace_format(text: str) -> None:
    """The same for `str.format`, where a width may also come from an argument."""
    if any(spec and _WIDE_FIELD.search(spec) for _, _, spec, _ in Formatter().parse(text)):
        raise TemplateLimitError("it formats a value into a field of 10000 columns or more")


def replaced_size(text: str, old: str, new: str) -> int:
    """Length of `text.replace(old, new)` at most."""
    return len(text) + text.count(old) * len(new)


def _charge_sum(budget: RenderBudget, left: Any, right: Any) -> None:
    if isinstance(left, str) and isinstance(right, str):
        budget.charge(len(left) + len(right))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        budget.charge_items(len(left) + len(right))
    elif isinstance(left, CallArguments) or isinstance(right, CallArguments):
        budget.charge_text_of((left, right))


def _charge_product(budget: RenderBudget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
        return
    sequence, count = (left, right) if isinstance(right, int) else (right, left)
    if isinstance(count, int) and isinstance(sequence, str | bytes | list | tuple):
        charge = budget.charge if isinstance(sequence, str | bytes) else budget.charge_items
        charge(len(sequence) * max(count, 0))


def _charge_power(budget: RenderBudget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and right > 0:
        _check_bits(left.bit_length() * right)


def _charge_percent(budget: RenderBudget, left: Any, right: Any) -> None:
    if isinstance(left, str):
        check_percent_format(left)
        budget.charge_text_of((left, right))


def _check_bits(num_bits: int) -> None:
    if num_bits > _MAX_BITS:
        raise TemplateLimitError(f"it computes an integer of more than {_MAX_BITS} bits")


_OPERATORS: Mapping[str, Callable[[RenderBudget, Any, Any], None]] = {
    "+": _charge_sum,
    "*": _charge_product,
    "**": _charge_power,
    "%": _charge_percent,
}


def _padded(owner: Any, arguments: tuple[Any, ...]) -> int:
    return max((width for width in arguments if isinstance(width, int)), default=0)


def _tabs_expanded(owner: Any, arguments: tuple[Any, ...]) -> int:
    return len(owner) * max(_padded(owner, arguments), 8)


def _replaced(owner: Any, arguments: tuple[Any, ...]) -> int:
    texts = [text for text in arguments if isinstance(text, type(owner))]
    return len(owner) + owner.count(texts[0]) * len(texts[1]) if len(texts) > 1 else 0


def _joined(owner: Any, arguments: tuple[Any, ...]) -> int:
    parts = arguments[0] if arguments and isinstance(arguments[0], list | tuple | Mapping) else ()
    return sum(len(part) + len(owner) for part in parts if isinstance(part, str | bytes))


_METHODS: Mapping[str, Callable[[Any, tuple[Any, ...]], int]] = {
    "center": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "expandtabs": _tabs_expanded,
    "replace": _replaced,
    "join": _joined,
}
"""Methods of strings whose result can be much larger than the string -> size of that result."""
