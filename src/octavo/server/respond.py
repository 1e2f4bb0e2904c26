"""Sending an answer, streamed or whole, to a client that may leave."""

from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.connection import ClientGoneError, while_connected
from octavo.server.context import ServerContext
from octavo.server.endpoints import json_response
from octavo.server.streaming import EventSpelling, EventStream


class Spelled(Protocol):
    """An answer as an API spells it. Consume it once, by `whole` or by `stream`."""

    async def whole(self) -> dict[str, Any]:
        """The whole answer."""
        ...

    def stream(self) -> AsyncGenerator[dict[str, Any], None]:
        """The objects of its stream."""
        ...


async def respond(
    request: Request, server: ServerContext, answer: Spelled, *, stream: bool, spelling: EventSpelling | None = None
) -> Response:
    """The HTTP response of an answer. A client that leaves ends the generation in both cases."""
    if stream:
        return EventStream(answer.stream(), server.state, spelling)

    async def whole() -> Response:
        return json_response(await answer.whole())

    return await while_wanted(whole(), request, server)


async def while_wanted(work: Coroutine[Any, Any, Response], request: Request, server: ServerContext) -> Response:
    """The response that `work` makes, which ends when its client leaves: then there is none.

    Raises:
        ApiError: 503, the server stops or the engine is dead.
    """
    try:
        return await while_connected(work, request.receive, server.state)
    except ClientGoneError:
        return Nobody()


class Nobody(Response):
    """The response to a client that is gone: none."""

    async def __call__(self, *_: object) -> None:
        """Sends nothing."""
