"""Facts from outside, which no formula gives: each with its source, all in one data file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Cited:
    """One fact. `value` is in base units."""

    what: str
    value: float
    source: str


@cache
def cited_facts() -> Mapping[str, Cited]:
    """Name -> fact."""
    content = json.loads((files("octavo.planning") / "cited.json").read_text(encoding="utf-8"))
    return {name: Cited(**fact) for name, fact in content.items()}


def cited(name: str) -> float:
    """The value of one fact; KeyError where there is none of that name."""
    return cited_facts()[name].value
