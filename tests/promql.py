"""Reads PromQL as far as a test must: which metrics an expression asks for, by which labels, and how it groups them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s+|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<range>\[[^\]]*\])|(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"""
    r"""|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>])"""
)
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = _GROUPING | {"offset", "bool", "and", "or", "unless", "Inf", "NaN"}


@dataclass(frozen=True)
class Selector:
    """One metric of an expression."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""
    is_range: bool


@dataclass(frozen=True)
class Expression:
    """What an expression asks for."""

    selectors: tuple[Selector, ...]
    functions: frozenset[str]
    grouped_by: frozenset[str]


def read(text: str) -> Expression:
    """Reads an expression.

    Raises:
        ValueError: something stands there that is no PromQL this knows.
    """
    tokens = list(_tokens(text))
    selectors: list[Selector] = []
    functions: set[str] = set()
    labels: set[str] = set()
    place = 0
    signs = [token for kind, token in tokens if kind == "sign"]
    if signs.count("(") != signs.count(")"):
        raise ValueError(f"parentheses do not match: {text}")
    while place < len(tokens):
        kind, token = tokens[place]
        following = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        if kind == "name" and token in _GROUPING:
            end = _closing(tokens, place + 1, "(", ")")
            labels |= {word for known, word in tokens[place + 2 : end] if known == "name"}
            place = end
        elif kind == "name" and (following == "(" or following in _GROUPING):
            functions.add(token)
        elif kind == "name" and token not in _WORDS:
            end = _closing(tokens, place + 1, "{", "}") if following == "{" else place
            is_range = end + 1 < len(tokens) and tokens[end + 1][0] == "range"
            selectors.append(Selector(token, tuple(_matchers(tokens[place + 2 : end])), is_range))
            place = end
        place += 1
    return Expression(tuple(selectors), frozenset(functions), frozenset(labels))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"{text[place : place + 20]!r} is no PromQL this knows, in {text}")
        if match.lastgroup is not None:
            yield match.lastgroup, match.group()
        place = match.end()


def _closing(tokens: list[tuple[str, str]], start: int, opening: str, closing: str) -> int:
    if start >= len(tokens) or tokens[start][1] != opening:
        raise ValueError(f"{opening} is missing behind {tokens[start - 1][1]}")
    for place in range(start, len(tokens)):
        if tokens[place] == ("sign", closing):
            return place
    raise ValueError(f"{closing} is missing behind {tokens[start - 1][1]}")


def _matchers(tokens: list[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    place = 0
    while place < len(tokens):
        if tokens[place] == ("sign", ","):
            place += 1
            continue
        words = tokens[place : place + 3]
        kinds, (label, operator, value) = [kind for kind, _ in words], [*(word for _, word in words), "", ""][:3]
        if kinds != ["name", "sign", "text"] or operator not in ("=", "!=", "=~", "!~"):
            raise ValueError(f"{label} {operator} {value} is no matcher")
        yield label, operator, value[1:-1]
        place += 3
