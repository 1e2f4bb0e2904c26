"""Around every request: its id, its log line, its figures."""

import re
import uuid
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.access_log import FIGURES, RequestFigures, log_access
from octavo.server.endpoints import EndpointRoute
from octavo.server.errors import REQUEST_ID
from octavo.server.http_metrics import HttpMetrics

SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
UNOBSERVED = frozenset({"/metrics", "/health", "/ready", "/load"})
"""Probes would drown everything else."""
MAX_LENGTH_DIGITS = 16
"""Of an announced length; larger ones are refused anyway."""


class Observer:
    """Gives each request an id (the client's `X-Request-Id` if it is sane), echoes it, and counts the answer."""

    def __init__(
        self, app: ASGIApp, metrics: HttpMetrics, clock: Callable[[], float], *, logs_access: bool = False
    ) -> None:
        self._app = app
        self._logs_access = logs_access
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        status: int | None = None
        num_sent = 0

        async def watch(message: Message) -> None:
            nonlocal status, num_sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            elif message["type"] == "http.response.body":
                num_sent += len(message.get("body", b""))
            await send(message)

        figures = RequestFigures()
        REQUEST_ID.set(request_id)
        FIGURES.set(figures)
        begin = self._clock()
        if scope["path"] in UNOBSERVED:
            await self._app(scope, receive, watch)
            return
        try:
            with self._metrics.in_flight.track_inprogress():
                await self._app(scope, receive, watch)
        finally:
            seconds = self._clock() - begin
            self._count(scope, status, seconds, num_sent)
            if self._logs_access:
                tenant = str(scope.get("state", {}).get("tenant", ""))
                log_access(scope["method"], scope["path"], status, seconds, request_id, tenant, figures)

    def _count(self, scope: Scope, status: int | None, seconds: float, num_sent: int) -> None:
        method = scope["method"]
        route = scope.get("route")  # set by the router, so that a hostile path makes no label of its own
        handler = route.path if isinstance(route, EndpointRoute) else "other"
        known = method if method in ("GET", "POST", "DELETE") else "other"
        self._metrics.observe(handler, known, status, seconds, (_announced_bytes(scope), num_sent))


def _announced_bytes(scope: Scope) -> int:
    """Of the body, as the client announces them; 0 where it does not."""
    text: bytes = dict(scope["headers"]).get(b"content-length", b"")
    return int(text) if text.isdigit() and len(text) < MAX_LENGTH_DIGITS else 0


def _request_id(scope: Scope) -> str:
    offered: bytes = dict(scope["headers"]).get(b"x-request-id", b"")
    return offered.decode() if SANE_ID.fullmatch(offered) else uuid.uuid4().hex
