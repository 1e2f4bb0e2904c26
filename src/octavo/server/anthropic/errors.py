"""Errors as this API spells them, whatever part of the server they come from."""

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.errors import REQUEST_ID, SPELLING, ApiError

PREFIX = "/v1/messages"
"""The paths of this API."""
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""HTTP status -> `type`; other 4xx are invalid_request_error, other 5xx api_error."""


def anthropic_error(error: ApiError) -> dict[str, Any]:
    """The JSON object that a client gets. The message names the field where there is one."""
    fallback = "invalid_request_error" if error.status < 500 else "api_error"
    kind = ERROR_TYPES.get(error.status, fallback)
    return {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": REQUEST_ID.get()}


class AnthropicShape:
    """Around everything else: on the paths of this API errors have its shape, and answers the header `request-id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == PREFIX or path.startswith(PREFIX + "/")):
            await self._app(scope, receive, send)
            return

        async def name(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"request-id", REQUEST_ID.get().encode())]}
            await send(message)

        scope.setdefault("state", {})[SPELLING] = anthropic_error
        await self._app(scope, receive, name)
