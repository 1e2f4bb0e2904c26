"""API keys: kept as digests, looked up in constant time, each with the limits that hold for it.

Keys come in clear by flag or environment, or as sha256 digests from a file:

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

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from octavo.config import ServerConfig
from octavo.errors import ConfigError

TENANT_DIGITS = 32
"""Hex digits of a key's digest that name its tenant."""
MAX_LIMIT = 2**53 - 1
"""Largest limit of a key."""


@dataclass(frozen=True, kw_only=True)
class KeyLimits:
    """What one key may use; 0: no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    """Prompt and output together."""
    concurrent_requests: int = 0


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """One key, without the key."""

    name: str
    """For logs: tells keys apart and opens nothing."""
    digest: bytes
    """sha256 of the key; empty for whoever asks a server without keys."""
    limits: KeyLimits

    @property
    def tenant(self) -> str:
        """What sessions, ledgers and shares of the engine are kept apart by."""
        return self.digest.hex()[:TENANT_DIGITS]


class KeyRing:
    """The keys that open one class of routes."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self.keys = tuple(keys)

    @property
    def empty(self) -> bool:
        """Whether there is no key at all."""
        return not self.keys

    def find(self, headers: Sequence[tuple[bytes, bytes]]) -> ApiKey | None:
        """The key that a request's headers carry; None if none or an unknown one.

        Takes the same time for any wrong key: digests of equal length are compared, and always all of them.
        """
        offered = _digest(_credential(headers))
        matches = [hmac.compare_digest(offered, key.digest) for key in self.keys]
        return self.keys[matches.index(True)] if any(matches) else None


@dataclass(frozen=True)
class KeyRings:
    """All keys of a server."""

    user: KeyRing
    admin: KeyRing
    anyone: ApiKey
    """Who asks where no user key is asked for."""

    @property
    def limited(self) -> tuple[ApiKey, ...]:
        """Keys whose usage counts."""
        return (self.anyone, *self.user.keys)


def load_keys(config: ServerConfig) -> KeyRings:
    """The keys of flags, environment and key file.

    Raises:
        ConfigError: the file cannot be read or says something else than keys; a key stands there twice.
    """
    defaults = KeyLimits(
        requests_per_minute=config.key_requests_per_minute,
        tokens_per_minute=config.key_tokens_per_minute,
        concurrent_requests=config.key_concurrent_requests,
    )
    filed = () if config.api_key_file is None else _read_file(config.api_key_file)
    user = [*(_given(key, defaults) for key in config.api_key), *(entry.key(defaults) for entry in filed if entry.user)]
    admin = [*(_given(key, KeyLimits()) for key in config.admin_key), *(e.key(KeyLimits()) for e in filed if e.admin)]
    _refuse_doubles(user, admin)
    return KeyRings(KeyRing(user), KeyRing(admin), ApiKey(name="anyone", digest=b"", limits=defaults))


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of a key file."""

    name: str
    sha256: str
    admin: bool = False
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    @property
    def user(self) -> bool:
        return not self.admin

    def key(self, defaults: KeyLimits) -> ApiKey:
        own = {name: value for name, value in self.limits().items() if value is not None}
        return ApiKey(name=self.name, digest=bytes.fromhex(self.sha256), limits=replace(defaults, **own))

    def limits(self) -> dict[str, int | None]:
        """By name; None: as for every key."""
        return {
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
            "concurrent_requests": self.concurrent_requests,
        }


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[_Entry]


def _read_file(path: str) -> list[_Entry]:
    import yaml  # noqa: PLC0415 - only for a key file

    try:
        entries = msgspec.convert(yaml.safe_load(Path(path).read_text()), _File).keys
    except OSError as error:
        raise ConfigError("api_key_file", path, f"cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        # The parser's message would quote the file.
        raise ConfigError("api_key_file", path, "is no valid YAML") from None
    except msgspec.ValidationError as error:
        raise ConfigError("api_key_file", path, f"must hold 'keys:', a list of name and sha256: {error}") from None
    for entry in entries:
        _check_entry(path, entry)
    return entries


def _check_entry(path: str, entry: _Entry) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._@-]{1,64}", entry.name):
        problem = f"the name {entry.name!r} must be 1 to 64 of A-Z a-z 0-9 . _ @ -"
        raise ConfigError("api_key_file", path, problem)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", entry.sha256):
        problem = f"sha256 of {entry.name!r} must be 64 hex digits, as `octavo key hash` prints them, not the key"
        raise ConfigError("api_key_file", path, problem)
    for name, value in entry.limits().items():
        if value is not None and not 0 <= value <= MAX_LIMIT:
            raise ConfigError("api_key_file", path, f"{name} of {entry.name!r} must be in [0, {MAX_LIMIT}]")
    if entry.admin and any(value is not None for value in entry.limits().values()):
        raise ConfigError("api_key_file", path, f"{entry.name!r} is an admin key; limits are for user keys")


def _refuse_doubles(user: Sequence[ApiKey], admin: Sequence[ApiKey]) -> None:
    seen: dict[bytes, str] = {}
    names: set[str] = set()
    for key in (*user, *admin):
        if key.digest in seen:
            problem = f"{seen[key.digest]!r} and {key.name!r} are the same key; a key opens one class of routes, once"
            raise ConfigError("api_key", "...", problem)
        if key.name in names:
            raise ConfigError("api_key_file", key.name, "two keys have this name")
        seen[key.digest] = key.name
        names.add(key.name)


def _given(key: str, limits: KeyLimits) -> ApiKey:
    digest = _digest(key.encode())
    return ApiKey(name=f"key-{digest.hex()[:8]}", digest=digest, limits=limits)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _credential(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The key in `Authorization: Bearer` (OpenAI), else in `x-api-key` (Anthropic); empty if there is none, or more
    than one of a kind: a proxy in front might have looked at another one."""
    authorization = [value for name, value in headers if name == b"authorization"]
    if authorization:
        scheme, _, key = authorization[0].partition(b" ")
        return key.strip() if len(authorization) == 1 and scheme.lower() == b"bearer" else b""
    direct = [value for name, value in headers if name == b"x-api-key"]
    return direct[0].strip() if len(direct) == 1 else b""
