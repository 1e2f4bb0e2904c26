"""Errors as clients see them: always `{"error": {"message", "type", "param", "code"}}`."""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import (
    EngineDeadError,
    EngineDrainingError,
    InvalidRequestError,
    OctavoError,
    PinBudgetError,
    ProfileError,
    QueueFullError,
    RequestFailedError,
    SessionNotFoundError,
)
from octavo.server.tracing.request_trace import current_trace
from octavo.suggestion import did_you_mean

log = logging.getLogger(__name__)

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")
"""The HTTP request being answered, for logs and for messages that point to them."""

ERROR_TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}
"""HTTP status -> `type`; other 4xx are invalid_request_error, other 5xx server_error."""


class ApiError(OctavoError):
    """An error with its HTTP status. `param` names the request field, `code` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        super().__init__(message)

    def body(self) -> dict[str, object]:
        """The JSON object that the client gets."""
        fallback = "invalid_request_error" if self.status < 500 else "server_error"
        kind = ERROR_TYPES.get(self.status, fallback)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The HTTP response."""
        return ErrorResponse(self)


SPELLING = "error_spelling"
"""Where the state of a scope holds how its API spells errors: a function of the ApiError; absent: as OpenAI does."""


def note_failure(error: ApiError) -> None:
    """The trace of the request being answered, if there is one, tells of the error that its client gets."""
    current_trace().failed(error.code or f"http_{error.status}", error.status, error.message)


class ErrorResponse(Response):
    """An error, spelled as its route's API spells them: whoever raises it need not know."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(status_code=error.status)
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._error
        note_failure(error)
        spell: Callable[[ApiError], dict[str, object]] = scope.get("state", {}).get(SPELLING, ApiError.body)
        content = msgspec.json.encode(spell(error))
        response = Response(content, error.status, headers=error.headers, media_type="application/json")
        await response(scope, receive, send)


def from_exception(error: Exception) -> ApiError:
    """The error that a client gets for an exception. What nobody foresaw is logged here and answered in general terms,
    so that no path, address or module name leaves the server."""
    match error:
        case ApiError():
            return error
        case InvalidRequestError():
            return ApiError(400, str(error), param=error.field, code="invalid_value")
        case QueueFullError():
            wait = {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
            return ApiError(429, str(error), code="queue_full", headers=wait)
        case PinBudgetError():
            wait = {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
            return ApiError(429, f"session_id: {error}", param="session_id", code="pin_budget", headers=wait)
        case SessionNotFoundError():
            return ApiError(404, f"session_id: {error}", param="session_id", code="session_not_found")
        case ProfileError():
            return ApiError(409, str(error), code="profile_conflict")
        case EngineDrainingError():
            return draining()
        case EngineDeadError():
            return engine_dead()
        case RequestFailedError():
            return ApiError(500, str(error), code="generation_failed")
        case _:
            request_id = REQUEST_ID.get()
            log.error("request %s failed", request_id, exc_info=error)
            return ApiError(500, f"internal error; the server's log knows it as {request_id}", code="internal_error")


def engine_dead() -> ApiError:
    """503: the engine core is gone."""
    return ApiError(503, "the engine has stopped; the server is going down", code="engine_dead")


def aborted() -> ApiError:
    """499: `/v1/abort`, or whoever paused the engine, has ended a request whose API has no other word for it."""
    return ApiError(499, "the request was aborted", code="aborted")


def draining() -> ApiError:
    """503: the engine was told to take nothing new."""
    message = "the engine drains: it takes no new requests; send the request to another one or try again later"
    return ApiError(503, message, code="draining", headers={"Retry-After": "5"})


def paused() -> ApiError:
    """503, for probes: the engine runs nothing new. Requests are not refused with it, they wait."""
    message = "the engine is paused: requests wait until it goes on"
    return ApiError(503, message, code="paused", headers={"Retry-After": "5"})


def shutting_down() -> ApiError:
    """503: the server drains."""
    message = "the server is shutting down; send the request to another one or try again later"
    return ApiError(503, message, code="shutting_down", headers={"Retry-After": "5"})


def took_too_long(what: str, seconds: float) -> ApiError:
    """408: a client that sends too slowly, or nothing; the connection ends, for the rest would have to be read."""
    message = f"{what} did not arrive within {seconds:g} s"
    return ApiError(408, message, code="request_timeout", headers={"Connection": "close"})


async def _answer_ours(_: Request, error: Exception) -> Response:
    return from_exception(error).response()


async def _answer_framework(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    place = f"{request.method} {request.scope['path'][:200]}"
    meant = did_you_mean(request.scope["path"], [route.path for route in request.app.routes])
    hint = meant and f"; {meant}"
    messages = {404: f"no such endpoint: {place}{hint}", 405: f"{place}: this endpoint does not take that method"}
    message = messages.get(error.status_code, str(error.detail))
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return ApiError(error.status_code, message, code=code, headers=error.headers).response()


ERROR_HANDLERS: Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
    OctavoError: _answer_ours,
    HTTPException: _answer_framework,
}
"""Gives every error of the framework and of ours the same shape."""


class ErrorBoundary:
    """The last line of defence: an exception that nothing handled becomes a 500 in OpenAI's shape."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            if scope["type"] != "http" or started:
                raise
            await from_exception(error).response()(scope, receive, send)
