"""Values that nobody expects in a field."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Odd:
    """A value with its JSON text, which may be something that no JSON writer would write."""

    name: str
    text: str


def _odd(name: str, value: Any) -> Odd:
    return Odd(name, json.dumps(value))


FEW = (
    _odd("null", None),
    _odd("true", True),
    _odd("minus-one", -1),
    _odd("zero", 0),
    _odd("half", 0.5),
    _odd("2^31", 2**31),
    _odd("2^63", 2**63),
    Odd("NaN", "NaN"),
    _odd("empty-text", ""),
    _odd("text", "surprise"),
    Odd("lone-surrogate", '"\\ud83d"'),
    _odd("empty-list", []),
    _odd("empty-object", {}),
)
MORE = (
    _odd("false", False),
    _odd("one", 1),
    _odd("-2^63-1", -(2**63) - 1),
    _odd("2^1100", 2**1100),
    Odd("Infinity", "-Infinity"),
    Odd("1e999", "1e999"),
    _odd("tiny", 5e-324),
    _odd("null-byte", "a\0b"),
    _odd("long-text", "word " * 20_000),
    _odd("list-of-null", [None]),
    _odd("list-of-numbers", [1, 2, 3]),
    _odd("list-of-texts", ["a", ""]),
    _odd("long-list", [1] * 20_000),
    _odd("nested-lists", [[[[[[[[1]]]]]]]]),
    Odd("deep-lists", "[" * 3_000 + "]" * 3_000),
    Odd("deep-objects", '{"a":' * 3_000 + "1" + "}" * 3_000),
    _odd("object", {"type": "surprise", "name": "x"}),
    _odd("object-of-null", {"a": None}),
    Odd("repeated-key", '{"a": 1, "a": 2}'),
    _odd("right-to-left", "\u202eabc\ufeff\U0010ffff"),
)

MARK = "\u2042 the odd value stands here \u2042"


def text_of(body: Any, odd: Odd) -> bytes:
    """The JSON text of a body in which MARK stands for the odd value."""
    return json.dumps(body).replace(json.dumps(MARK), odd.text).encode()
