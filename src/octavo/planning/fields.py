"""Checked reading of profiles that people write: each fault names file, field, value and what would do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeVar

from octavo.errors import ConfigError

Part = TypeVar("Part")


@dataclass
class Entry:
    """One object of a profile; knows which of its fields have been read."""

    place: str
    values: Mapping[str, object]
    _read: set[str] = field(default_factory=set, init=False)

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str) or not value:
            raise self._fault(key, value, "must be a text")
        return value

    def count(self, key: str) -> int:
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._fault(key, value, "must be a whole number from 1 on")
        return value

    def positive(self, key: str) -> float:
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
            raise self._fault(key, value, "must be a positive number")
        return float(value)

    def rates(self, key: str) -> dict[str, float]:
        """An object of positive numbers, at least one."""
        part = self.part(key)
        if not part.values:
            raise self._fault(key, {}, "must hold at least one number format and its peak")
        return {name: part.positive(name) for name in part.values}

    def texts(self, key: str) -> dict[str, str]:
        """An object of texts; empty where it is absent."""
        if key not in self.values:
            return {}
        part = self.part(key)
        return {name: part.text(name) for name in part.values}

    def part(self, key: str) -> "Entry":
        """The object at `key`."""
        return entry_of(self._value(key), f"{self.place}: {key}")

    def optional(self, key: str, read: "Callable[[Entry], Part]") -> Part | None:
        """The object at `key` as `read` makes it; None where it is absent or null."""
        self._read.add(key)
        return None if self.values.get(key) is None else read(self.part(key))

    def finish(self) -> None:
        """Raises ConfigError if there is a field that nothing has read."""
        unknown = sorted(set(self.values) - self._read)
        if unknown:
            known = ", ".join(sorted(self._read))
            raise self._fault(unknown[0], self.values[unknown[0]], f"is not known here; known are {known}")

    def _value(self, key: str) -> object:
        self._read.add(key)
        if key not in self.values:
            raise ConfigError(f"{self.place}: {key}", None, "is missing; add it")
        return self.values[key]

    def _fault(self, key: str, value: object, problem: str) -> ConfigError:
        return ConfigError(f"{self.place}: {key}", value, problem)


def entry_of(value: object, place: str) -> Entry:
    """An object that stands at a place of a file; raises ConfigError where it is none."""
    if not isinstance(value, Mapping):
        raise ConfigError(place, value, "must be an object of names and values")
    return Entry(place, value)
