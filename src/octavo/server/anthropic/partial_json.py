"""What is certain of a JSON object whose text was cut off."""

import json
from typing import Any

CLOSERS = {"{": "}", "[": "]"}


def object_so_far(text: str) -> dict[str, Any]:
    """The object that a text spells, without what is unfinished at its end: an open string, a key without a value. As
    the stock client reads the deltas of a call that was cut off: a number stands as far as it goes.

    Args:
        text: a JSON object, or the beginning of one.
    """
    scan = _Scan(text)
    for candidate in (text, text + scan.closers_at_end, text[: scan.certain] + scan.closers):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


class _Scan:
    """Where in a text its beginning can be closed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[str] = []
        self.certain = 0
        """Up to here everything is whole."""
        self.closers = ""
        """What closes that."""
        position, previous = 0, ""
        while position < len(text):
            position, previous = self._step(position, previous)
        self.closers_at_end = self._closers()

    def _step(self, position: int, previous: str) -> tuple[int, str]:
        """Reads one string or character; returns where the next begins, and the last structural character."""
        char = self._text[position]
        if char == '"':
            end = _string_end(self._text, position)
            if end and (previous in (":", "[") or (previous == "," and self._open[-1:] == ["["])):
                self._note(end)  # a value; a key is nothing without one
            return end or len(self._text), previous
        if char in CLOSERS:
            self._open.append(char)
        elif char in "}]" and self._open:
            self._open.pop()
        if char in "{}[]":
            self._note(position + 1)
        elif char == ",":
            self._note(position)
        return position + 1, char if char in "{}[],:" else previous

    def _note(self, end: int) -> None:
        self.certain, self.closers = end, self._closers()

    def _closers(self) -> str:
        return "".join(CLOSERS[bracket] for bracket in reversed(self._open))


def _string_end(text: str, begin: int) -> int:
    """Where the string that begins there ends; 0 if it does not."""
    position = begin + 1
    while position < len(text):
        if text[position] == '"':
            return position + 1
        position += 2 if text[position] == "\\" else 1
    return 0
