"""POST /v1/messages and POST /v1/messages/count_tokens."""

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.anthropic.messages_body import CountTokensBody, MessagesBody
from octavo.server.anthropic.order import SPELLINGS, MessageOrder, order_message, plan_message
from octavo.server.anthropic.spelled import MessageEvents, SpelledMessage
from octavo.server.body import read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.endpoints import json_response
from octavo.server.respond import respond
from octavo.server.spelling import respelled


class Messages:
    """The endpoints."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def create(self, request: Request) -> Response:
        """A message that goes on with a conversation, in Anthropic's format, whole or as a stream of events."""
        arrival = self._server.clock()
        body = await read_body(request, MessagesBody, self._server)
        model = self._server.model_name(body.model)
        order = await self.order(body, arrival=arrival, tenant=tenant_of(request))
        spelled = SpelledMessage(order.answer, model, fills_context=order.fills_context)
        return await respond(request, self._server, spelled, stream=bool(body.stream), spelling=MessageEvents())

    async def order(self, body: MessagesBody, *, arrival: float, tenant: str) -> MessageOrder:
        """What a body asks for; nothing runs before its answer is read.

        Raises:
            InvalidRequestError, ApiError: it cannot be honoured.
        """
        with respelled(SPELLINGS):
            return await order_message(self._server, body, arrival=arrival, tenant=tenant)

    async def count_tokens(self, request: Request) -> Response:
        """The number of tokens of the prompt that the same request to /v1/messages would have."""
        body = await read_body(request, CountTokensBody, self._server)
        self._server.model_name(body.model)
        with respelled(SPELLINGS):
            plan = await plan_message(self._server, body)
        return json_response({"input_tokens": len(plan.token_ids)})
