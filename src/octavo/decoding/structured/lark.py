"""Pieces of grammars in llguidance's variant of Lark."""

import json
import re
from collections.abc import Mapping

from octavo.decoding.structured.regex_dialect import quoted

HEADER = '%llguidance {"no_forcing": true}'
"""Without it the library narrows forced text to one way of cutting it into tokens; which one depends on a tokenizer
that is called back. With it every token that fits is allowed, and allowed is what the matcher accepts."""

NOTHING = '""'
_STRING_SYNTAX = '"\\'
"""Texts with these, or with characters that cannot be seen, are written as expressions."""


def grammar(rules: list[str]) -> str:
    """A grammar of these rules; one of them is `start`."""
    return "\n".join((HEADER, *rules))


def regex(expression: str) -> str:
    """A terminal of an expression in the backend's dialect, which has no bare slash or line break."""
    return f"/{expression}/"


def word(text: str) -> str:
    """A text as one terminal, or as part of one."""
    if all(char.isprintable() and char not in _STRING_SYNTAX for char in text):
        return f'"{text}"'
    return regex("".join(map(quoted, text)))


def spelled(text: str, specials: Mapping[str, int]) -> str:
    """A text character by character, control tokens as these.

    The library cuts text into terminals greedily: of `("a" | "ab") "b"` it finds no `ab`. Terminals of one character
    leave nothing to be greedy about.
    """
    return " ".join(_pieces(text, specials)) or NOTHING


def one_of_json(schema: object) -> str:
    """A JSON value of a schema that is known to be sound."""
    return f"%json {json.dumps(schema)}"


def _pieces(text: str, specials: Mapping[str, int]) -> list[str]:
    if not specials:
        return [word(char) for char in text]
    marker = re.compile("|".join(map(re.escape, sorted(specials, key=len, reverse=True))))
    pieces: list[str] = []
    at = 0
    for found in marker.finditer(text):
        pieces += [word(char) for char in text[at : found.start()]]
        pieces.append(f"<[{specials[found.group()]}]>")
        at = found.end()
    return pieces + [word(char) for char in text[at:]]
