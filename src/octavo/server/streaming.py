"""Server-sent events: one JSON object per event, errors in the stream once it has begun."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.connection import ClientGoneError, while_connected
from octavo.server.errors import ApiError, from_exception, note_failure
from octavo.server.state import ServerState

DONE = b"data: [DONE]\n\n"
MAX_PARTS_IN_A_ROW = 2
"""Parts that are sent before others get their turn. Where many are ready at once, nobody would notice meanwhile that
the client has left. And asyncio complains of the fifth write to a lost connection; so many may be written before and
after the turn in which it is told of the loss."""
_encode = msgspec.json.Encoder().encode


def event(data: Any) -> bytes:
    """One event on the wire."""
    return b"data: " + _encode(data) + b"\n\n"


class EventSpelling(Protocol):
    """How an API spells a stream. One object spells one stream."""

    def event(self, item: dict[str, Any]) -> bytes:
        """An object on the wire."""
        ...

    def failure(self, error: ApiError) -> bytes:
        """What ends a stream that failed."""
        ...

    def end(self) -> bytes:
        """What ends a stream that went well."""
        ...


class UnnamedEvents:
    """The spelling of completions and chats: no names, `[DONE]` at the end."""

    def event(self, item: dict[str, Any]) -> bytes:
        """See EventSpelling."""
        return event(item)

    def failure(self, error: ApiError) -> bytes:
        """See EventSpelling."""
        return event(error.body()) + DONE

    def end(self) -> bytes:
        """See EventSpelling."""
        return DONE


def named_event(item: dict[str, Any]) -> bytes:
    """One event on the wire, under the name that is its `type`."""
    return b"event: " + str(item["type"]).encode() + b"\n" + event(item)


class EventStream(Response):
    """Streams JSON objects as events.

    The status line waits for the first object, so that whatever fails before it gets its proper HTTP status. What
    fails later becomes an event. A client that leaves ends the generator.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        objects: AsyncGenerator[dict[str, Any], None],
        state: ServerState,
        spelling: EventSpelling | None = None,
    ) -> None:
        """
        Args:
            spelling: that of completions and chats if None.
        """
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._objects = objects
        self._state = state
        self._spelling = spelling or UnnamedEvents()
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(self._send_all(send), receive, self._state)
        except ClientGoneError:
            return
        except Exception as error:
            await self._send_error(error, scope, receive, send)

    async def _send_all(self, send: Send) -> None:
        num_sent = 0
        async with aclosing(self._objects):
            async for item in self._objects:
                await self._send_part(self._spelling.event(item), send)
                num_sent += 1
                if num_sent % MAX_PARTS_IN_A_ROW == 0:
                    await asyncio.sleep(0)
        await self._send_part(self._spelling.end(), send, last=True)

    async def _send_part(self, part: bytes, send: Send, *, last: bool = False) -> None:
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": part, "more_body": not last})

    async def _send_error(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        failure = from_exception(error)
        if self._begun:
            note_failure(failure)
            await self._send_part(self._spelling.failure(failure), send, last=True)
        else:
            await failure.response()(scope, receive, send)
