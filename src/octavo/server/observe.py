"""Around every request: its id, its log line, its figures."""

import logging
import re
import uuid
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.endpoints import EndpointRoute
from octavo.server.errors import REQUEST_ID
from octavo.server.metrics import HttpMetrics

log = logging.getLogger(__name__)

SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
UNOBSERVED = frozenset({"/metrics", "/health", "/ready"})
"""Probes would drown everything else."""


class Observer:
    """Gives each request an id (the client's `X-Request-Id` if it is sane), echoes it, and counts the answer."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, clock: Callable[[], float]) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        status: int | None = None

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            await send(message)

        REQUEST_ID.set(request_id)
        begin = self._clock()
        if scope["path"] in UNOBSERVED:
            await self._app(scope, receive, watch)
            return
        try:
            with self._metrics.in_flight.track_inprogress():
                await self._app(scope, receive, watch)
        finally:
            self._note(scope, request_id, status, self._clock() - begin)

    def _note(self, scope: Scope, request_id: str, status: int | None, seconds: float) -> None:
        path, method = scope["path"], scope["method"]
        shown = "client left" if status is None else str(status)
        log.debug("%s %s %s %.3fs %s", method, path, shown, seconds, request_id)
        route = scope.get("route")  # set by the router, so that a hostile path makes no label of its own
        handler = route.path if isinstance(route, EndpointRoute) else "other"
        self._metrics.observe(handler, method if method in ("GET", "POST", "DELETE") else "other", status, seconds)


def _request_id(scope: Scope) -> str:
    offered: bytes = dict(scope["headers"]).get(b"x-request-id", b"")
    return offered.decode() if SANE_ID.fullmatch(offered) else uuid.uuid4().hex
