"""The two ends of a request's ledger that only the server sees: when it came, and when its answer had left."""

from collections.abc import Callable
from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.engine.received import RECEIVED_S
from octavo.server.serving_engine import ServingEngine

_ASKED: ContextVar[dict[str, str] | None] = ContextVar("asked", default=None)
"""Group -> tenant of what the HTTP request being answered has asked of the engine."""


def asks(group: str, tenant: str) -> None:
    """The HTTP request being answered asks the engine for something of this name; no-op outside of one."""
    asked = _ASKED.get()
    if asked is not None:
        asked[group] = tenant


class DeliveryNotes:
    """Outermost around every HTTP request, so that its answer has left when this one is done."""

    def __init__(self, app: ASGIApp, engine: ServingEngine, clock: Callable[[], float]) -> None:
        self._app = app
        self._engine = engine
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked: dict[str, str] = {}
        _ASKED.set(asked)
        RECEIVED_S.set(self._clock())
        try:
            await self._app(scope, receive, send)
        finally:
            for group, tenant in asked.items():
                self._engine.note_delivery(group, tenant=tenant)
