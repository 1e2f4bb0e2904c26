"""GET /health, /ready, /version and /metrics."""

import asyncio

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.errors import EngineDeadError
from octavo.request.control import EngineLoad
from octavo.request.orders import PauseMode
from octavo.server.context import ServerContext
from octavo.server.endpoints import json_response
from octavo.server.errors import ApiError, draining, engine_dead, paused
from octavo.server.state import Phase

LOAD_PATIENCE_S = 5.0
"""A step may take this long before the engine counts as not answering."""


class Status:
    """What probes and dashboards ask."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def health(self, _: Request) -> Response:
        """200 while the engine lives, 503 once it is dead. A draining server is healthy."""
        return engine_dead().response() if self._dead else Response(b"{}", media_type="application/json")

    async def ready(self, _: Request) -> Response:
        """200 while new requests are taken and run, 503 while the server drains, the engine is paused, or dead: routers
        look here."""
        refusal = engine_dead() if self._dead else self._server.state.refusal() or self._engine_refusal()
        return Response(b"{}", media_type="application/json") if refusal is None else refusal.response()

    def _engine_refusal(self) -> ApiError | None:
        try:
            mode = self._server.engine.newest_load().paused
        except EngineDeadError:
            return engine_dead()
        if mode is None:
            return None
        return draining() if mode is PauseMode.DRAIN else paused()

    @property
    def _dead(self) -> bool:
        return self._server.state.phase is Phase.DEAD or not self._server.engine.alive

    async def version(self, _: Request) -> Response:
        """The version of Octavo."""
        return json_response({"version": octavo.__version__})

    async def metrics(self, _: Request) -> Response:
        """Prometheus' text format. Answers also in front of a dead engine: then `octavo:engine_up` is 0."""
        figures = self._server.metrics
        try:
            figures.engine.load = await self._load()
        except EngineDeadError:
            figures.engine.load = None
        totals = await self._server.siblings.totals(figures.figures())
        return Response(figures.text(totals), media_type=CONTENT_TYPE_LATEST)

    async def _load(self) -> EngineLoad:
        try:
            async with asyncio.timeout(LOAD_PATIENCE_S):
                return await self._server.engine.load()
        except TimeoutError:
            raise EngineDeadError("the engine does not answer") from None
