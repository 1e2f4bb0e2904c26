"""Which web pages may use the server: none but those of `--allowed-origins`.

A browser sends the page's `Origin` with every request that could change something, and with everything that a script
wants to read. So a request with an Origin that is not allowed is refused here, not only left without the headers that
would let its page read the answer: a page on the internet must not make a server on its visitor's machine work. A page
of the server itself is allowed under an IP address or as localhost only, since any other name could have been pointed
at this machine (DNS rebinding).

Protocol: the CORS part of the Fetch standard, https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.errors import ApiError

METHODS = "GET, POST, DELETE"
EXPOSED = (
    "x-request-id, retry-after, retry-after-ms, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
PREFLIGHT_S = 600
"""How long a browser may remember a preflight's answer."""


class OriginGuard:
    """Refuses requests from pages that are not allowed; answers preflights and marks answers for those that are."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        """
        Args:
            allowed: origins such as https://chat.example, compared exactly; `*` stands for all.
        """
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        origin = headers.get(b"origin")
        if origin is None:
            await self._app(scope, receive, send)
        elif origin.decode("latin-1") in self._allowed or "*" in self._allowed:
            await self._serve_allowed(origin, headers, scope, receive, send)
        elif _is_own_page(origin, headers.get(b"host", b"")):
            await self._app(scope, receive, send)
        else:
            await _not_allowed(origin).response()(scope, receive, send)

    async def _serve_allowed(
        self, origin: bytes, headers: dict[bytes, bytes], scope: Scope, receive: Receive, send: Send
    ) -> None:
        mark = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *mark]}
            await send(message)

        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            wanted = headers.get(b"access-control-request-headers", b"").decode("latin-1")
            await _preflight(wanted)(scope, receive, marked)
            return
        mark.append((b"access-control-expose-headers", EXPOSED.encode()))
        await self._app(scope, receive, marked)


def _preflight(wanted_headers: str) -> Response:
    told = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Max-Age": str(PREFLIGHT_S),
        **({"Access-Control-Allow-Headers": wanted_headers} if wanted_headers else {}),
    }
    return Response(status_code=204, headers=told)


def _is_own_page(origin: bytes, host: bytes) -> bool:
    """Whether the page came from the address that its request goes to, and that address is no rented name."""
    try:
        page = urlsplit(origin.decode("latin-1"))
        name = page.hostname or ""
    except ValueError:
        return False
    return page.netloc.lower() == host.decode("latin-1").lower() and (name == "localhost" or _is_ip_address(name))


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _not_allowed(origin: bytes) -> ApiError:
    page = origin.decode("latin-1")[:100]
    message = f"pages of {page!r} may not use this server; --allowed-origins would let them"
    return ApiError(403, message, param="Origin", code="origin_not_allowed")
