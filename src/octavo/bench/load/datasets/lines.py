"""Reading data set files: every complaint names the file and the place."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError


def read_text(path: str) -> str:
    """A file's text.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"byte {error.start} is not UTF-8"
        raise ConfigError("dataset_path", path, f"cannot be read ({why})") from None


def json_lines(path: str, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number, object) of each line that is not empty.

    Raises:
        ConfigError: a line is no object of JSON.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise fault(path, number, f"is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise fault(path, number, "is no JSON object")
        yield number, row


def whole(path: str, number: int, row: Mapping[str, Any], name: str, least: int = 0) -> int:
    """A field that is a whole number.

    Raises:
        ConfigError: it is missing, something else, or too small.
    """
    value = row.get(name)
    try:
        read = int(value) if isinstance(value, str) else value
    except ValueError:
        read = None
    if not isinstance(read, int) or isinstance(read, bool) or read < least:
        raise fault(path, number, f"{name} is {value!r}; it must be a whole number of at least {least}")
    return read


def fault(path: str, number: int, problem: str) -> ConfigError:
    """An error about one line."""
    return ConfigError("dataset_path", path, f"line {number}: {problem}")
