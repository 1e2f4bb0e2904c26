"""The filters and functions that chat templates may use.

jinja2's own, without those that chat templates have no use for and that draw random numbers, run regular
expressions over text, or fill lists (`random`, `urlize`, `wordwrap`, `batch`, `slice`, `xmlattr`, `pprint`,
`center`, `truncate`, `filesizeformat`, `lipsum`); Hugging Face's `tojson`; and a budget around every one that
makes text.
"""

import json
from collections.abc import Callable
from typing import Any, cast

from jinja2 import pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.tests import TESTS
from jinja2.utils import Namespace

from octavo.text.template_budget import RenderBudget
from octavo.text.template_operations import check_percent_format, replaced_size

BUDGET = "octavo budget"
"""Where a rendering keeps its budget among the template's variables. The space keeps it from being a name in
it."""

_STRUCTURAL = [
    "abs", "attr", "count", "d", "default", "first", "float", "int", "items", "last", "length", "reject",
    "rejectattr", "reverse", "round", "select", "selectattr", "sum",
]  # fmt: skip
"""Filters that look at each item once, and whose result is no larger than what goes in."""
_COMPARING = ["groupby", "max", "min", "sort", "unique"]
"""Filters that compare items with each other. All take the environment first."""
_COMPARING_TESTS = [
    "!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "in", "le", "lessthan", "lt",
    "ne",
]  # fmt: skip
_TEXTUAL = [
    "capitalize", "e", "escape", "forceescape", "lower", "safe", "string", "striptags", "title", "trim",
    "upper", "urlencode", "wordcount",
]  # fmt: skip
"""Filters that turn their input into text."""
_MAX_INDENT = 64


def budget_of(context: Context) -> RenderBudget:
    """The budget of the rendering that a template context belongs to."""
    budget: RenderBudget = context.parent[BUDGET]
    return budget


def template_filters() -> dict[str, Callable[..., Any]]:
    """Name -> filter."""
    return {
        **{name: FILTERS[name] for name in _STRUCTURAL},
        **{name: _comparing_filter(FILTERS[name]) for name in _COMPARING},
        **{name: _textual_filter(FILTERS[name]) for name in _TEXTUAL},
        "dictsort": _dictsort,
        "format": _format,
        "indent": _indent,
        "join": _join,
        "list": _list,
        "map": _map,
        "replace": _replace,
        "tojson": _tojson,
    }


def template_tests() -> dict[str, Callable[..., Any]]:
    """Name -> test (`x is name`)."""
    tests = cast("dict[str, Callable[..., Any]]", TESTS)
    return {**tests, **{name: _comparing_test(tests[name]) for name in _COMPARING_TESTS}}


def template_functions() -> dict[str, Callable[..., Any]]:
    """Name -> global function, beside those of the sandbox (`range`, `cycler`, `joiner`)."""
    return {"dict": _dict, "namespace": TemplateNamespace, "raise_exception": _raise_exception}


class TemplateRefusedError(TemplateError):
    """A template called `raise_exception`: it says itself what is wrong with the conversation."""


class TemplateNamespace(Namespace):
    """jinja2's `namespace`, which must not be given attributes that Python reads."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # like dict's: `self` may be a key
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        Namespace.__setitem__(self, name, value)

    def __repr__(self) -> str:  # jinja2's own writes out what it holds, which may be namespaces again
        return "<namespace>"


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}: names must not begin with an underscore")


@pass_context
def _dict(context: Context, /, *args: Any, **kwargs: Any) -> dict[Any, Any]:  # called as `dict` is
    made = dict(*args, **kwargs)
    budget_of(context).check_size(made)
    return made


def _raise_exception(message: object) -> None:
    raise TemplateRefusedError(str(message))


def _textual_filter(original: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def charged(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:  # whatever that filter takes
        budget_of(context).charge_text_of(value)
        return original(value, *args, **kwargs)

    return charged


def _comparing_filter(original: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def checked(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:  # whatever that filter takes
        items = list(value)
        budget_of(context).check_size(items)
        return original(context.environment, items, *args, **kwargs)

    return checked


def _comparing_test(original: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def checked(context: Context, value: Any, other: Any) -> Any:
        budget_of(context).check_size((value, other))
        return original(value, other)

    return checked


@pass_context
def _dictsort(
    context: Context, value: Any, case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> Any:
    budget_of(context).check_size(value)
    return FILTERS["dictsort"](value, case_sensitive, by, reverse)


@pass_context
def _map(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:  # a filter and its arguments, or attribute=
    """Each item may become one of the arguments (`map('default', x)`), so these must be plain values."""
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, list | tuple | dict) and argument:
            raise TemplateError("map: arguments that hold other values are not supported")
    return FILTERS["map"](context, value, *args, **kwargs)


@pass_context
def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:  # as `%` takes them
    check_percent_format(str(value))
    budget_of(context).charge_text_of((value, args, kwargs))
    text: str = FILTERS["format"](value, *args, **kwargs)
    return text


@pass_context
def _indent(context: Context, value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    columns = len(width) if isinstance(width, str) else width
    budget_of(context).charge(len(value) + (value.count("\n") + 1) * max(columns, 0))
    text: str = FILTERS["indent"](value, width, first, blank)
    return text


@pass_context
def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    items = list(value)
    budget = budget_of(context)
    budget.charge_text_of(items)
    budget.charge(len(items) * len(str(d)))
    text: str = FILTERS["join"](context.eval_ctx, items, d, attribute)
    return text


@pass_context
def _list(context: Context, value: Any) -> list[Any]:
    items = list(value)
    budget_of(context).charge_items(len(items))
    return items


@pass_context
def _replace(context: Context, value: Any, old: str, new: str, count: int | None = None) -> str:
    budget = budget_of(context)
    budget.charge_text_of(value)
    budget.charge(replaced_size(str(value), str(old), str(new)))
    text: str = FILTERS["replace"](context.eval_ctx, value, old, new, count)
    return text


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Python's JSON: jinja2's own filter escapes HTML characters, which models never saw in training."""
    if indent is not None and indent > _MAX_INDENT:
        raise TemplateError(f"tojson: indent is {indent}, at most {_MAX_INDENT} is supported")
    budget_of(context).charge_text_of(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
