"""/v1/requests/{id} and /v1/abort: what becomes of a request, and its early end, for the key that made it. Requests of
others do not exist for it."""

from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.request.ledger_form import request_form
from octavo.server.body import read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.endpoints import json_response
from octavo.server.errors import ApiError
from octavo.server.fields import Honoured, RequestBody

MAX_NAMES = 1000
MAX_NAME_CHARS = 256


class AbortBody(RequestBody):
    """Which requests are to end."""

    request_id: Annotated[str | None, Honoured("the id of an answer, or the `X-Request-Id` of its request")] = None
    request_ids: Annotated[list[str] | None, Honoured(f"several of them, up to {MAX_NAMES}")] = None


class Requests:
    """The endpoints."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def retrieve(self, request: Request) -> Response:
        """The ledger of a request of this key, while it runs and for some time after: tokens, steps, seconds. By the id
        of its answer, or by its `X-Request-Id`. Holds nothing of its content."""
        name = str(request.path_params["request_id"])
        ledger = None
        if len(name) <= MAX_NAME_CHARS:
            ledger = await self._server.engine.ledger(name, tenant=tenant_of(request))
        if ledger is None:
            problem = f"there is no request {name[:100]!r}: it never reached the engine, or it ended long ago"
            raise ApiError(404, problem, code="request_not_found")
        return json_response(request_form(ledger, self._server.wall_clock()))

    async def abort(self, request: Request) -> Response:
        """Ends requests of this key with finish reason `abort`: a stream ends, a whole answer comes with what there is.
        `aborted` names those that were running; ids that are unknown or have ended are no error."""
        body = await read_body(request, AbortBody, self._server)
        ended = await self._server.engine.abort_named(_names(body), tenant=tenant_of(request))
        return json_response({"object": "abort", "aborted": ended})


def _names(body: AbortBody) -> list[str]:
    """
    Raises:
        InvalidRequestError: there is none, or too many, or too long ones.
    """
    names = [*([] if body.request_id is None else [body.request_id]), *(body.request_ids or [])]
    if not names:
        raise InvalidRequestError("request_id", body.request_id, "name a request here, or several in request_ids")
    if len(names) > MAX_NAMES:
        raise InvalidRequestError("request_ids", len(names), f"must be at most {MAX_NAMES} at one time")
    for name in names:
        if not 1 <= len(name) <= MAX_NAME_CHARS:
            raise InvalidRequestError("request_ids", name, f"must hold 1 to {MAX_NAME_CHARS} characters each")
    return names
