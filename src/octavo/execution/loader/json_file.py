"""JSON that comes with a model: bounded, without doubled keys, and every fault a ModelFileError."""

import json
from pathlib import Path
from typing import Any

from octavo.errors import ModelFileError

_MAX_BYTES = 64 << 20


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ModelFileError: the file is missing, unreadable, larger than 64 MiB or no JSON object.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ModelFileError(f"is {size} bytes long, more than the {_MAX_BYTES} allowed", str(path))
        text = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot be read ({error.strerror}); the model folder is incomplete", str(path)) from error
    return parse_json_object(text, path, 0)


def parse_json_object(text: bytes, path: Path, offset: int) -> dict[str, Any]:
    """`text`, found at `offset` of the file `path`, as a dict; errors as in `read_json_object`."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique_keys)
    except UnicodeDecodeError as error:
        raise ModelFileError("not UTF-8. Fetch the file again", str(path), offset + error.start) from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"not valid JSON ({error}). Fetch the file again", str(path), offset) from error
    if not isinstance(value, dict):
        raise ModelFileError(f"holds a JSON {type(value).__name__}, not an object", str(path), offset)
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} appears twice")
            seen.add(key)
    return value
