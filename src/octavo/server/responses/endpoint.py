"""POST /v1/responses, and the responses that are kept."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.body import read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.endpoints import json_response
from octavo.server.errors import ApiError
from octavo.server.respond import respond
from octavo.server.responses.order import (
    SPELLINGS,
    ResponseOrder,
    check_store,
    count_input,
    echoed,
    order_response,
    previous_not_found,
)
from octavo.server.responses.response_body import InputTokensBody, ResponseBody
from octavo.server.responses.spelled import Keep, ResponseEvents, SpelledResponse
from octavo.server.responses.stored import ResponseStore, StoredResponse, plain_items, shown_item
from octavo.server.spelling import respelled

MAX_LISTED = 100
"""Most items of one page, as OpenAI has it."""


class Responses:
    """The endpoints."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._store = ResponseStore(server.engine, server.config)

    async def create(self, request: Request) -> Response:
        """A response to some input, whole or as a stream of events. It is kept for a while unless `store` is false, so
        that it can be read again and gone on from with `previous_response_id`."""
        arrival = self._server.clock()
        body = await read_body(request, ResponseBody, self._server)
        spelled = await self._begin(body, arrival, tenant_of(request))
        return await respond(request, self._server, spelled, stream=bool(body.stream), spelling=ResponseEvents())

    async def order(self, body: ResponseBody, *, arrival: float, tenant: str) -> ResponseOrder:
        """What a body asks for; nothing runs before its answer is read.

        Raises:
            InvalidRequestError, ApiError: it cannot be honoured.
        """
        with respelled(SPELLINGS):
            body.check()
            stores = check_store(body, keeps=self._store.keeps)
            previous = await self._previous(body.previous_response_id, tenant)
            return await order_response(self._server, body, previous, arrival=arrival, tenant=tenant, stores=stores)

    async def count_input(self, request: Request) -> Response:
        """The number of tokens of the prompt that the same request to /v1/responses would have."""
        body = await read_body(request, InputTokensBody, self._server)
        self._server.model_name(body.model)
        with respelled(SPELLINGS):
            previous = await self._previous(body.previous_response_id, tenant_of(request))
            num_tokens = await count_input(self._server, body, previous)
        return json_response({"object": "response.input_tokens", "input_tokens": num_tokens})

    async def _begin(self, body: ResponseBody, arrival: float, tenant: str) -> SpelledResponse:
        model = self._server.model_name(body.model)
        order = await self.order(body, arrival=arrival, tenant=tenant)
        generation = order.answer.order.generation
        head = {
            "id": generation.request_id,
            "object": "response",
            "created_at": int(self._server.wall_clock()),
            "model": model,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "usage": None,
            "store": order.stores,
            **echoed(body, generation.params),
        }
        keep = self._keep(order, tenant) if order.stores else None
        return SpelledResponse(order.answer, head, keep, self._server.wall_clock)

    def _keep(self, order: ResponseOrder, tenant: str) -> Keep:
        async def keep(response: dict[str, Any]) -> bool:
            return await self._store.put(StoredResponse(response, plain_items(order.context)), tenant)

        return keep

    async def _previous(self, response_id: str | None, tenant: str) -> StoredResponse | None:
        if response_id is None:
            return None
        stored = await self._store.get(response_id, tenant)
        if stored is None:
            raise previous_not_found(response_id)
        return stored

    async def retrieve(self, request: Request) -> Response:
        """A response that is kept."""
        for name in ("stream", "starting_after"):
            if request.query_params.get(name, "false") != "false":
                raise InvalidRequestError(name, request.query_params[name], "a stream is not kept; leave it out")
        return json_response((await self._found(request)).response)

    async def delete(self, request: Request) -> Response:
        """Lets go of a response. What was begun from it goes on: it has all that it needs."""
        stored = await self._found(request)
        await self._store.remove(stored.response["id"], tenant_of(request))
        return json_response({"id": stored.response["id"], "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        """Refused: only background responses can be cancelled, and there are none. A client that leaves cancels."""
        stored = await self._found(request)
        problem = "only responses in the background can be cancelled; this one has ended"
        raise InvalidRequestError("response_id", stored.response["id"], problem)

    async def input_items(self, request: Request) -> Response:
        """The items that a kept response was made from, those of the responses before it included."""
        stored = await self._found(request)
        items = [shown_item(item) for item in stored.context]
        query = request.query_params
        limit, order = _limit(query.get("limit", "20")), _order(query.get("order", "desc"))
        listed = items if order == "asc" else items[::-1]
        page = _after(listed, query.get("after"))
        shown = page[:limit]
        return json_response(
            {
                "object": "list",
                "data": shown,
                "first_id": shown[0]["id"] if shown else None,
                "last_id": shown[-1]["id"] if shown else None,
                "has_more": len(page) > limit,
            }
        )

    async def _found(self, request: Request) -> StoredResponse:
        response_id = str(request.path_params["response_id"])
        stored = await self._store.get(response_id, tenant_of(request))
        if stored is None:
            message = f"there is no response {response_id[:100]!r}: it was not stored, or is kept no more"
            raise ApiError(404, message, param="response_id", code="response_not_found")
        return stored


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_LISTED:
        raise InvalidRequestError("limit", text, f"must be an integer in [1, {MAX_LISTED}]")
    return int(text)


def _order(text: str) -> str:
    if text not in ("asc", "desc"):
        raise InvalidRequestError("order", text, "must be asc or desc")
    return text


def _after(items: list[dict[str, Any]], item_id: str | None) -> list[dict[str, Any]]:
    """
    Raises:
        InvalidRequestError: there is no such item.
    """
    if item_id is None:
        return items
    places = [place for place, item in enumerate(items) if item["id"] == item_id]
    if not places:
        raise InvalidRequestError("after", item_id, "is none of this response's items")
    return items[places[0] + 1 :]
