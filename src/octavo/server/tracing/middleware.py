"""Around every request that generates: its span."""

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.access_log import FIGURES, RequestFigures
from octavo.server.tracing.attributes import OPERATIONS
from octavo.server.tracing.request_trace import TRACE, RequestTrace

if TYPE_CHECKING:
    from octavo.server.tracing.tracer import Tracer

CRASH_STATUS = 500


class TraceRequests:
    """Opens a span when a request comes and ends it when its answer has left. The answer names the span in its header
    `traceresponse` (W3C Trace Context, level 3), so that a client without traces of its own can find it."""

    def __init__(self, app: ASGIApp, tracer: "Tracer") -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        traced = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in OPERATIONS
        span = self._tracer.open(scope["path"], scope["headers"]) if traced else None
        if span is None:
            await self._app(scope, receive, send)
            return
        trace = RequestTrace(tenant=str(scope.get("state", {}).get("tenant", "")))
        TRACE.set(trace)

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status, trace.streams = message["status"], _is_stream(message)
                message = {**message, "headers": [*message["headers"], (b"traceresponse", span.header)]}
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            trace.failed(type(error).__name__, CRASH_STATUS, "the request ended in an unforeseen error")
            raise
        finally:
            self._tracer.finish(span, trace, FIGURES.get() or RequestFigures())


def _is_stream(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in start["headers"])
