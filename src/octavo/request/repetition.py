"""When an answer that repeats itself is ended."""

import msgspec

from octavo.errors import InvalidRequestError

MAX_PATTERN_SIZE = 1024
"""Every token may be compared with so many before it."""
_FIELD = "repetition_detection"


class RepetitionDetection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ends an answer with finish reason `repetition` when its last tokens are `min_count` copies of one pattern of
    `min_pattern_size` to `max_pattern_size` tokens. Names and meaning are vLLM's.

    Raises:
        InvalidRequestError: sizes or count that cannot be meant, naming the field.
    """

    max_pattern_size: int = 0
    """Longest pattern in tokens; 0: nothing is looked for."""
    min_pattern_size: int = 0
    """Shortest pattern in tokens; 0 means 1."""
    min_count: int = 0
    """Copies, one behind the other, that make a repetition; at least 2."""

    def __post_init__(self) -> None:
        largest = self.max_pattern_size
        _require_int("max_pattern_size", largest, 0, MAX_PATTERN_SIZE)
        _require_int("min_pattern_size", self.min_pattern_size, 0, largest)
        _require_int("min_count", self.min_count, 2 if largest else 0, 2**31 - 1)


def _require_int(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidRequestError(f"{_FIELD}.{name}", value, f"must be an integer in [{low}, {high}]")
