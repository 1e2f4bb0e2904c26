"""Where a URL leads."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from octavo.errors import ConfigError


@dataclass(frozen=True)
class Address:
    """A host, and how it is reached."""

    host: str
    port: int
    tls: bool
    base: str
    """Path before the endpoint's, ending in /v1."""


def address_of(url: str) -> Address:
    """Takes a URL apart.

    Raises:
        ConfigError: it is none of HTTP.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError("url", url, f"is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        raise ConfigError("url", url, "write it like http://127.0.0.1:8000")
    tls = parts.scheme == "https"
    base = parts.path.rstrip("/")
    return Address(host, port or (443 if tls else 80), tls, base if base.endswith("/v1") else f"{base}/v1")
