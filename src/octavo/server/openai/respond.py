"""Sending an answer, streamed or whole."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.connection import ClientGoneError, while_connected
from octavo.server.context import ServerContext
from octavo.server.openai.answer import SpelledAnswer
from octavo.server.streaming import EventStream


async def respond(request: Request, server: ServerContext, answer: SpelledAnswer, *, stream: bool) -> Response:
    """The HTTP response of an answer. A client that leaves ends the generation in both cases."""
    if stream:
        return EventStream(answer.stream(), server.state)
    try:
        whole = await while_connected(answer.whole(), request.receive, server.state)
    except ClientGoneError:
        return Nobody()
    return Response(msgspec.json.encode(whole), media_type="application/json")


class Nobody(Response):
    """The response to a client that is gone: none."""

    async def __call__(self, *_: object) -> None:
        """Sends nothing."""
