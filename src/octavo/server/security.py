"""Who may ask for what: routes by class, and the keys that open each."""

from enum import Enum

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.api_keys import ApiKey, KeyRings
from octavo.server.errors import ApiError


class Access(Enum):
    """Who may use a route."""

    OPEN = "open"
    """Anyone: probes."""
    USER = "user"
    """Whoever has an API key, or anyone if the server has none."""
    ADMIN = "admin"
    """Whoever has an admin key; without one on the server, nobody."""


OPEN_PATHS = frozenset({"/health", "/ready"})
"""Probes ask these without a key. Matched exactly."""
ADMIN_PREFIX = "/admin"
"""Everything below it is for operators."""
UNKNOWN_KEY = "missing or unknown API key; send the header 'Authorization: Bearer YOUR_KEY' or 'x-api-key: YOUR_KEY'"


def access_of(path: str, *, open_metrics: bool = False) -> Access:
    """The class of a path as the router sees it. What is in no table, known or not, is for users."""
    if path in OPEN_PATHS or (open_metrics and path == "/metrics"):
        return Access.OPEN
    if path == ADMIN_PREFIX or path.startswith(ADMIN_PREFIX + "/"):
        return Access.ADMIN
    return Access.USER


class ApiKeyGuard:
    """Lets a request through only with a key of its route's class, and notes the key and its tenant in the scope's
    state. A user key opens no admin route, an admin key no other: whoever holds one cannot act as the other."""

    def __init__(self, app: ASGIApp, keys: KeyRings, *, open_metrics: bool = False) -> None:
        self._app = app
        self._keys = keys
        self._open_metrics = open_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._check(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refusal.response()(scope, receive, send)

    def _check(self, scope: Scope) -> ApiError | None:
        match access_of(scope["path"], open_metrics=self._open_metrics):
            case Access.OPEN:
                return None
            case Access.ADMIN if self._keys.admin.empty:
                return _no_admin(scope)
            case Access.ADMIN:
                key = self._keys.admin.find(scope["headers"])
            case Access.USER if self._keys.user.empty:
                key = self._keys.anyone
            case Access.USER:
                key = self._keys.user.find(scope["headers"])
        if key is None:
            return self._refusal(scope)
        scope.setdefault("state", {}).update(api_key=key, tenant=key.tenant)
        return None

    def _refusal(self, scope: Scope) -> ApiError:
        """Who holds a key of the other class is told so; all others are told the same, whatever they sent."""
        if self._keys.admin.find(scope["headers"]) is not None:
            return _unauthorized("this API key does not open this route: an admin key opens /admin and nothing else")
        if self._keys.user.find(scope["headers"]) is not None:
            return _unauthorized("this API key does not open this route: /admin wants an admin key")
        return _unauthorized(UNKNOWN_KEY)


def key_of(request: Request) -> ApiKey | None:
    """The key that opened the route; None for routes that are open to all."""
    key: ApiKey | None = request.scope.get("state", {}).get("api_key")
    return key


def _no_admin(scope: Scope) -> ApiError:
    message = f"no such endpoint: {scope['method']} {scope['path'][:200]}; admin routes exist only with --admin-key"
    return ApiError(404, message, code="not_found")


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
