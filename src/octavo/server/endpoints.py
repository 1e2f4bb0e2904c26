"""Endpoints as plain data, their routes, and the description of them at /openapi.json.

Starlette alone, because importing a larger framework took a quarter of the server's start: bodies are read and checked
by ourselves, so all that was left for it were the routes and this page.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from octavo.server.fields import RequestBody

Answerer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """What answers to a method and a path."""

    method: str
    path: str
    answer: Answerer
    """Its docstring is the description for users."""
    body: type[RequestBody] | None = None
    """What it reads, for the description."""


class EndpointRoute(Route):
    """A route that leaves itself in the scope as `route`, for whoever counts answers by path."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint.path, endpoint.answer, methods=[endpoint.method])

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See Starlette."""
        match, found = super().matches(scope)
        return match, {**found, "route": self} if found else found


def describe(endpoints: Sequence[Endpoint], title: str, version: str) -> dict[str, Any]:
    """The endpoints in OpenAPI 3.1. Answers are left open: they follow OpenAI's documentation."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for endpoint in endpoints:
        shown = endpoint.path.replace(":path}", "}")
        paths.setdefault(shown, {})[endpoint.method.lower()] = _operation(endpoint, shown, schemas)
    info = {"title": title, "version": version}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _operation(endpoint: Endpoint, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """`schemas` takes in what the body refers to."""
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}{path.translate(str.maketrans('/{}', '___'))}",
        "description": inspect.getdoc(endpoint.answer) or "",
        "responses": {"200": {"description": "The answer."}, "default": {"description": "An error object."}},
    }
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if endpoint.body is not None:
        schema = endpoint.body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def json_response(answer: Mapping[str, Any]) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type="application/json")
