"""/admin: pause, resume, drain, the prefix cache, and who is there. Only with an admin key; see `security`."""

from typing import Annotated, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.request.ledger_form import request_form
from octavo.request.orders import PauseMode
from octavo.server.body import read_body
from octavo.server.context import ServerContext
from octavo.server.endpoints import json_response
from octavo.server.errors import ApiError
from octavo.server.fields import Honoured, RequestBody
from octavo.server.respond import while_wanted

Body = TypeVar("Body", bound=RequestBody)

MAX_TIMEOUT_S = 86400.0


class PauseBody(RequestBody):
    """How to pause."""

    mode: Annotated[
        Literal["abort", "wait", "keep"],
        Honoured("what runs: ends now (the default), runs to its end, or stands still until the pause ends"),
    ] = "abort"
    timeout_s: Annotated[
        float | None, Honoured("with `wait`: answer after so long at the latest; the pause goes on")
    ] = None


class DrainBody(RequestBody):
    """How to drain."""

    timeout_s: Annotated[float, Honoured("what runs may take so long to end, 30 by default; then it is aborted")] = 30.0


class EmptyBody(RequestBody):
    """Nothing to say."""


class Admin:
    """The endpoints. What they change is a state of the engine, so it holds for all processes in front of it."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def pause(self, request: Request) -> Response:
        """Runs no new requests until `/admin/resume`: they wait, and `/ready` says 503. `settled` is whether all has
        ended that runs to its end."""
        body = await optional_body(request, PauseBody, self._server)
        _check_timeout(body.timeout_s)
        return await while_wanted(self._pause(body), request, self._server)

    async def _pause(self, body: PauseBody) -> Response:
        engine = self._server.engine
        num_aborted = await engine.pause(PauseMode(body.mode))
        settled = await engine.settled(body.timeout_s)
        return json_response({"paused": body.mode, "settled": settled, "aborted": num_aborted})

    async def resume(self, request: Request) -> Response:
        """Ends a pause or a drain."""
        await optional_body(request, EmptyBody, self._server)
        await self._server.engine.resume()
        await self._server.engine.load()  # so that `/ready` knows at once
        return json_response({"paused": None})

    async def drain(self, request: Request) -> Response:
        """Refuses new requests (503) until `/admin/resume`, and answers when all that ran has ended, at the latest
        after `timeout_s`: what runs then is aborted."""
        body = await optional_body(request, DrainBody, self._server)
        _check_timeout(body.timeout_s)
        return await while_wanted(self._drain(body.timeout_s), request, self._server)

    async def _drain(self, timeout_s: float) -> Response:
        num_aborted = await self._server.engine.drain(timeout_s)
        return json_response({"drained": True, "aborted": num_aborted})

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Forgets all cached prefixes: of the KV memory, of sessions and of all tiers. 409, and nothing done, while
        requests hold blocks."""
        await optional_body(request, EmptyBody, self._server)
        if not await self._server.engine.reset_prefix_cache():
            problem = "requests hold KV blocks, so nothing was forgotten; POST /admin/pause first, then try again"
            raise ApiError(409, problem, code="cache_in_use")
        return json_response({"reset": True})

    async def requests(self, _: Request) -> Response:
        """The requests that have not ended, of all tenants, without their content."""
        now_s = self._server.wall_clock()
        live = await self._server.engine.live_requests()
        data = [{**request_form(ledger, now_s), "tenant": ledger.tenant} for ledger in live]
        return json_response({"object": "list", "data": data})


async def optional_body(request: Request, model: type[Body], server: ServerContext) -> Body:
    """What `read_body` reads; without a body what one without entries says, so that a probe or a hook needs none.

    Raises:
        ApiError, InvalidRequestError: as of `read_body`.
    """
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return model()
    return await read_body(request, model, server)


def _check_timeout(timeout_s: float | None) -> None:
    if timeout_s is not None and not 0 <= timeout_s <= MAX_TIMEOUT_S:
        raise InvalidRequestError("timeout_s", timeout_s, f"must be in [0, {MAX_TIMEOUT_S:.0f}] seconds")
