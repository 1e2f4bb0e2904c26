"""The key file: API keys as sha256 digests, with their limits.

keys:
  - name: alice
    sha256: 5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
    requests_per_minute: 60
    tokens_per_minute: 100000
    concurrent_requests: 4
  - name: operator
    sha256: ...
    admin: true
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError

MAX_LIMIT = 2**53 - 1
"""Largest limit of a key."""
LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
_KINDS: Mapping[str, tuple[type, str]] = {
    "name": (str, "a text; put quotes around it"),
    "sha256": (str, "a text; put quotes around it"),
    "admin": (bool, "true or false"),
    **dict.fromkeys(LIMITS, (int, "a whole number")),
}
"""Field of an entry -> its type, and how that is told."""
_REQUIRED = ("name", "sha256")


@dataclass(frozen=True, kw_only=True)
class KeyEntry:
    """One entry of a key file."""

    place: str
    """Where it stands, for messages: `entry 2 ('bob')`."""
    name: str
    digest: bytes
    admin: bool
    limits: Mapping[str, int]
    """Only those that it gives."""


def read_key_file(path: str) -> list[KeyEntry]:
    """The entries of a key file, of which there may be none.

    Raises:
        ConfigError: the file cannot be read or says something else than keys; naming the entry, and quoting nothing
            that might be a key in clear.
    """
    content = _load(path)
    keys = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(keys, list) or set(content) != {"keys"}:
        raise _wrong(path, "must hold 'keys:', a list of entries with name and sha256, and nothing else")
    return [_entry(path, number, entry) for number, entry in enumerate(keys, 1)]


def _load(path: str) -> Any:
    import yaml  # noqa: PLC0415 - only for a key file

    try:
        return yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})") from None
    except yaml.MarkedYAMLError as error:  # whose message would quote the file
        mark = error.problem_mark
        raise _wrong(path, "is no valid YAML" + (f", see line {mark.line + 1}" if mark else "")) from None
    except (yaml.YAMLError, ValueError):
        raise _wrong(path, "is no valid YAML") from None


def _entry(path: str, number: int, entry: Any) -> KeyEntry:
    if not isinstance(entry, dict):
        raise _wrong(path, f"entry {number} must have fields: name, sha256")
    named = isinstance(entry.get("name"), str)
    place = f"entry {number}" + (f" ({entry['name'][:64]!r})" if named else "")
    for field in entry:
        if field not in _KINDS:
            raise _wrong(path, f"{place}: no such field {field!r}; known are {', '.join(_KINDS)}")
    for field in _REQUIRED:
        if field not in entry:
            raise _wrong(path, f"{place}: {field} is missing; `octavo key new` prints whole entries")
    for field, value in entry.items():
        kind, told = _KINDS[field]
        if type(value) is not kind:
            raise _wrong(path, f"{place}: {field} must be {told}")
    limits = {name: entry[name] for name in LIMITS if name in entry}
    _check_values(path, place, entry, limits)
    digest = bytes.fromhex(entry["sha256"])
    return KeyEntry(place=place, name=entry["name"], digest=digest, admin=entry.get("admin", False), limits=limits)


def _check_values(path: str, place: str, entry: Mapping[str, Any], limits: Mapping[str, int]) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._@-]{1,64}", entry["name"]):
        raise _wrong(path, f"{place}: name must be 1 to 64 of A-Z a-z 0-9 . _ @ -")
    if not re.fullmatch(r"[0-9a-fA-F]{64}", entry["sha256"]):
        raise _wrong(path, f"{place}: sha256 must be 64 hex digits, as `octavo key hash` prints them, not the key")
    for name, value in limits.items():
        if not 0 <= value <= MAX_LIMIT:
            raise _wrong(path, f"{place}: {name} must be in [0, {MAX_LIMIT}]")
    if entry.get("admin") and limits:
        raise _wrong(path, f"{place} is an admin key; limits are for user keys")


def _wrong(path: str, problem: str) -> ConfigError:
    return ConfigError("api_key_file", path, problem)
