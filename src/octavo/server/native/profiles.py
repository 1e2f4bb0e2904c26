"""/admin/profile: traces of what the engine does. Only with an admin key; see `security`."""

from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.traces import Trace
from octavo.request.orders import MAX_TRACE_EVENTS
from octavo.server.context import ServerContext
from octavo.server.endpoints import json_response
from octavo.server.fields import Honoured, RequestBody
from octavo.server.native.admin import EmptyBody, optional_body
from octavo.server.respond import while_wanted

USUAL_SECONDS = 5.0
MOST_WAITED_S = 60.0
"""For steps that nobody asks for."""


class ProfileBody(RequestBody):
    """How long to record; the first limit that is reached ends it."""

    steps: Annotated[int | None, Honoured("so many steps")] = None
    seconds: Annotated[
        float | None, Honoured("so many seconds; without an entry of either kind 5, with `steps` alone 60")
    ] = None
    max_events: Annotated[int, Honoured("so many events, 200000 by default; a trace that was cut says so")] = (
        MAX_TRACE_EVENTS
    )


class ProfileStartBody(RequestBody):
    """The most to record, if nobody stops it before."""

    steps: Annotated[int | None, Honoured("so many steps")] = None
    seconds: Annotated[float | None, Honoured("so many seconds")] = None
    max_events: Annotated[int, Honoured("so many events, 200000 by default")] = MAX_TRACE_EVENTS


class Profiles:
    """The endpoints. There is one profile of an engine at a time, whichever process was asked for it: else 409."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def profile(self, request: Request) -> Response:
        """Records the next steps and answers with their Chrome trace, or with the file that it was written to. A client
        that leaves ends it."""
        body = await optional_body(request, ProfileBody, self._server)
        return await while_wanted(self._profile(body), request, self._server)

    async def _profile(self, body: ProfileBody) -> Response:
        usual = USUAL_SECONDS if body.steps is None else MOST_WAITED_S
        trace = await self._server.engine.profile(
            max_steps=body.steps,
            max_seconds=usual if body.seconds is None else body.seconds,
            max_events=body.max_events,
        )
        return _answer(trace)

    async def start(self, request: Request) -> Response:
        """Records from now on, until `/admin/profile/stop` or a limit, whatever becomes of the client."""
        body = await optional_body(request, ProfileStartBody, self._server)
        number = await self._server.engine.start_profile(
            max_steps=body.steps, max_seconds=body.seconds, max_events=body.max_events
        )
        return json_response({"profile": number})

    async def stop(self, request: Request) -> Response:
        """Ends what `/admin/profile/start` began, if it has not ended, and answers as `/admin/profile`."""
        await optional_body(request, EmptyBody, self._server)
        return _answer(await self._server.engine.stop_profile())


def _answer(trace: Trace) -> Response:
    if trace.path is None:
        return Response(trace.json, media_type="application/json")
    return json_response({"file": str(trace.path), **trace.about})
