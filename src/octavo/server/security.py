"""Who may ask: API keys, compared in constant time."""

import hashlib
import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError

OPEN_PATHS = frozenset({"/health", "/ready"})
"""Probes ask these without a key. Matched exactly: anything else is guarded, known or not."""


class KeyRing:
    """The accepted keys, kept as digests."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    @property
    def open(self) -> bool:
        """Whether no key is asked for."""
        return not self._digests

    def tenant_of(self, authorization: bytes | None) -> str | None:
        """The tenant behind an `Authorization` header: a digest of its key; None if no key fits.

        Takes the same time for any wrong key: digests of equal length are compared, and always all of them.
        """
        scheme, _, key = (authorization or b"").partition(b" ")
        offered = _digest(key.strip())
        matches = [hmac.compare_digest(offered, digest) for digest in self._digests]
        if scheme.lower() != b"bearer" or not any(matches):
            return None
        return offered.hex()[:32]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class ApiKeyGuard:
    """Lets a request through only with a known key, and notes its tenant in the scope's state."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._keys.open or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        tenant = self._keys.tenant_of(dict(scope["headers"]).get(b"authorization"))
        if tenant is None:
            await _unauthorized().response()(scope, receive, send)
            return
        scope.setdefault("state", {})["tenant"] = tenant
        await self._app(scope, receive, send)


def _unauthorized() -> ApiError:
    return ApiError(
        401,
        "missing or unknown API key; send the header 'Authorization: Bearer YOUR_KEY'",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )
