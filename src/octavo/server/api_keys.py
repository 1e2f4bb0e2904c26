"""API keys: kept as digests, looked up in constant time, each with the limits that hold for it.

Keys come in clear by flag or environment, or as sha256 digests from a file (`key_file`).
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.key_file import KeyEntry, read_key_file

TENANT_DIGITS = 32
"""Hex digits of a key's digest that name its tenant."""


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


@dataclass(frozen=True)
class _Source:
    """A key, and where it was given."""

    key: ApiKey
    field: str
    place: str
    """Within what the field names; empty for a key that is the field's value."""


def load_keys(config: ServerConfig) -> KeyRings:
    """The keys of flags, environment and key file.

    Raises:
        ConfigError: the file cannot be read or says something else than keys; it is there and nobody needs a key; a key
            stands there twice.
    """
    defaults = KeyLimits(
        requests_per_minute=config.key_requests_per_minute,
        tokens_per_minute=config.key_tokens_per_minute,
        concurrent_requests=config.key_concurrent_requests,
    )
    filed = [] if config.api_key_file is None else read_key_file(config.api_key_file)
    user = [_given("api_key", key, defaults) for key in config.api_key]
    user += [_filed(entry, defaults) for entry in filed if not entry.admin]
    admin = [_given("admin_key", key, KeyLimits()) for key in config.admin_key]
    admin += [_filed(entry, KeyLimits()) for entry in filed if entry.admin]
    if config.api_key_file is not None and not user:
        problem = "holds no user key, so everybody could use the server; add one, or leave the flag out"
        raise ConfigError("api_key_file", config.api_key_file, problem)
    _refuse_doubles(config, [*user, *admin])
    anyone = ApiKey(name="anyone", digest=b"", limits=defaults)
    return KeyRings(KeyRing(one.key for one in user), KeyRing(one.key for one in admin), anyone)


def _given(field: str, key: str, limits: KeyLimits) -> _Source:
    digest = _digest(key.encode())
    return _Source(ApiKey(name=f"key-{digest.hex()[:8]}", digest=digest, limits=limits), field, "")


def _filed(entry: KeyEntry, defaults: KeyLimits) -> _Source:
    key = ApiKey(name=entry.name, digest=entry.digest, limits=replace(defaults, **entry.limits))
    return _Source(key, "api_key_file", entry.place)


def _refuse_doubles(config: ServerConfig, sources: Sequence[_Source]) -> None:
    by_digest: dict[bytes, _Source] = {}
    by_name: dict[str, _Source] = {}
    for source in sources:
        other = by_digest.setdefault(source.key.digest, source)
        if other is not source:
            raise _twice(config, other, source, "are the same key; a key opens one class of routes, once")
        other = by_name.setdefault(source.key.name, source)
        if other is not source:
            raise _twice(config, other, source, "have the same name; logs could not tell the two keys apart")


def _twice(config: ServerConfig, first: _Source, second: _Source, problem: str) -> ConfigError:
    """About two keys: names the file if one of them stands there, and never a key."""
    filed = next((one for one in (first, second) if one.place), None)
    value = "..." if filed is None else config.api_key_file
    told = " and ".join(one.place or f"{one.field} ({one.key.name})" for one in (first, second))
    return ConfigError(first.field if filed is None else filed.field, value, f"{told} {problem}")


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
