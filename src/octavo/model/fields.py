"""Checked reading of metadata: a value is there, of its kind and within reason, or the error names file and key."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.errors import ModelFileError, UnsupportedModelError


@dataclass(frozen=True)
class Fields:
    """A mapping of metadata with the names needed for messages.

    A key whose value is None counts as absent: that is how config.json spells "not set".
    """

    path: str
    values: Mapping[str, object]
    prefix: str = ""
    """Put before every key, e.g. `llama.`."""

    def has(self, key: str) -> bool:
        return self.values.get(self.prefix + key) is not None

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """The integer at `key` in [low, high]; without a default the key is required."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._absurd(key, value, f"an integer in [{low}, {high}]")
        return value

    def per_layer(self, key: str, layers: int, low: int, high: int, default: int | None = None) -> int:
        """Like `integer`, for keys that may hold one value per layer: those must be equal.

        Raises:
            UnsupportedModelError: where they are not.
        """
        value = self._value(key, default)
        if not isinstance(value, list | tuple):
            return self.integer(key, low, high, default)
        if len(value) != layers:
            raise self._absurd(key, value, f"one value for each of {layers} layers")
        if len(set(value)) != 1:
            raise UnsupportedModelError(
                f"{self.path}: {self.prefix}{key}={value!r:.120} differs between layers; Octavo computes this"
                " architecture with equal layers only"
            )
        return Fields(self.path, {self.prefix + key: value[0]}, self.prefix).integer(key, low, high)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """The number at `key` in [low, high]; without a default the key is required."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._absurd(key, value, f"a number in [{low}, {high}]")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._absurd(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._absurd(key, value, "a string")
        return value

    def items(self, key: str) -> list[object]:
        """The list at `key`."""
        value = self._value(key, None)
        if not isinstance(value, list | tuple):
            raise self._absurd(key, value, "a list")
        return list(value)

    def nested(self, key: str) -> "Fields":
        """The mapping at `key`; empty where it is absent."""
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            raise self._absurd(key, value, "an object")
        return Fields(f"{self.path}: {self.prefix}{key}", value)

    def accept(self, key: str, *neutral: object) -> None:
        """Refuses a feature: the key must be absent, or one of the values that leave the arithmetic as it is.

        Raises:
            UnsupportedModelError: naming key and value.
        """
        value = self.values.get(self.prefix + key)
        if value is not None and not any(type(value) is type(n) and value == n for n in neutral):
            raise UnsupportedModelError(
                f"{self.path}: {self.prefix}{key}={value!r:.120} asks for a feature that Octavo does not compute for"
                f" this architecture (accepted: absent{''.join(f', {n!r}' for n in neutral)})"
            )

    def error(self, key: str, problem: str) -> ModelFileError:
        """An error about the value at `key` that a single-key check cannot see."""
        return ModelFileError(f"{self.path}: {self.prefix}{key}={self.values.get(self.prefix + key)!r:.120} {problem}")

    def _value(self, key: str, default: object) -> object:
        value = self.values.get(self.prefix + key)
        if value is not None:
            return value
        if default is None:
            raise ModelFileError(f"{self.path}: the metadata lacks {self.prefix}{key}, which this architecture needs")
        return default

    def _absurd(self, key: str, value: object, wanted: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {self.prefix}{key}={value!r:.120} is not {wanted}")
