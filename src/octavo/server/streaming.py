"""Server-sent events: one JSON object per event, `[DONE]` at the end, errors in the stream once it has begun."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.connection import ClientGoneError, while_connected
from octavo.server.errors import from_exception
from octavo.server.state import ServerState

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


def event(data: Any) -> bytes:
    """One event on the wire."""
    return b"data: " + _encode(data) + b"\n\n"


class EventStream(Response):
    """Streams JSON objects as events.

    The status line waits for the first object, so that whatever fails before it gets its proper HTTP status. What
    fails later becomes an `{"error": ...}` event. A client that leaves ends the generator.
    """

    media_type = "text/event-stream"

    def __init__(self, objects: AsyncGenerator[dict[str, Any], None], state: ServerState) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._objects = objects
        self._state = state
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(self._send_all(send), receive, self._state)
        except ClientGoneError:
            return
        except Exception as error:
            await self._send_error(error, scope, receive, send)

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._objects):
            async for item in self._objects:
                await self._send_part(event(item), send)
        await self._send_part(DONE, send, last=True)

    async def _send_part(self, part: bytes, send: Send, *, last: bool = False) -> None:
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": part, "more_body": not last})

    async def _send_error(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        failure = from_exception(error)
        if self._begun:
            await self._send_part(event(failure.body()) + DONE, send, last=True)
        else:
            await failure.response()(scope, receive, send)
