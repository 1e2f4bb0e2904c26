"""From the bytes of a request to a checked object: limits first, then JSON, then types, then unknown fields."""

import asyncio
import json
import re
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from octavo.errors import InvalidRequestError
from octavo.server.body_weight import BodyWeight, weigh
from octavo.server.connection import end_tasks
from octavo.server.context import ServerContext
from octavo.server.errors import ApiError, took_too_long
from octavo.server.fields import RequestBody
from octavo.suggestion import did_you_mean

UTF_8 = frozenset({"utf-8", "utf8", "us-ascii"})
MAX_NESTING = 201
"""Objects and lists within each other, the body included; what pydantic's parser takes."""
WEIGHED_BYTES = 2**16
"""From here on a body is weighed before it is read: a shorter one is read in 10 ms at worst."""
MAX_HEAVY_VALUES = 50_000
"""Objects, lists and texts, keys included, in one body. 5,000 messages have 25,000; reading those takes some 5 ms."""
MIN_VALUES = 2**18
"""Values of any kind that a body may hold in any case, such as token ids; and always twice as many as the context has
tokens. Reading so many takes some 15 ms."""
MAX_DIGITS = 4300
"""Of an integer: Python's own bound, since reading them takes quadratic time."""
CLOSE = {"Connection": "close"}
"""Where the rest of a body is not read."""
TAKEN_BY = {"messages": "/v1/chat/completions", "prompt": "/v1/completions", "input": "/v1/responses or /v1/embeddings"}
"""What a request says, as other endpoints call it -> who takes it so."""
Body = TypeVar("Body", bound=RequestBody)


async def read_body(request: Request, model: type[Body], server: ServerContext) -> Body:
    """Reads and validates a JSON body. Of a key that stands twice in an object the last one counts.

    Raises:
        ApiError: 408 if it does not arrive in `receive_timeout`, 413 beyond `max_body_bytes` (as soon as that is
            clear), 415 for another content type or an encoded body, 503 if the server stops taking requests meanwhile,
            400 for everything else, naming the field.
        InvalidRequestError: a field that exists but is not supported holds a value that would have an effect.
    """
    _check_headers(request)
    raw = await _read_while_taken(request, server)
    if len(raw) >= WEIGHED_BYTES:
        _check_weight(await asyncio.to_thread(weigh, raw), max(MIN_VALUES, 2 * server.engine.info.max_model_len))
    return parse_body(raw, model)


def parse_body(raw: bytes, model: type[Body]) -> Body:
    """Validates a JSON body.

    Raises:
        ApiError: 400, naming the field.
        InvalidRequestError: a field that exists but is not supported holds a value that would have an effect.
    """
    if not raw.strip():
        raise ApiError(400, "the body is empty; send a JSON object, {} if it has nothing to say", code="invalid_json")
    try:
        body = model.model_validate_json(raw)
    except ValidationError as error:
        raise _explain(error, model) from None
    body.refuse_unsupported()
    return body


def _check_weight(weight: BodyWeight, max_values: int) -> None:
    """Refuses what would take so long to read that everybody's streams would stop."""
    heavy = weight.num_containers + weight.num_strings
    if heavy > MAX_HEAVY_VALUES:
        problem = f"the body holds {heavy} objects, lists and texts; at most {MAX_HEAVY_VALUES} are read"
        raise ApiError(413, problem, code="request_too_large")
    if weight.num_commas + weight.num_containers > max_values:
        problem = f"the body holds more than {max_values} values, which is more than the context's tokens twice"
        raise ApiError(413, problem, code="request_too_large")


def _check_headers(request: Request) -> None:
    content_type, *options = request.headers.get("content-type", "application/json").lower().split(";")
    if content_type.strip() != "application/json" and not content_type.strip().endswith("+json"):
        problem = f"the body must be JSON: send 'Content-Type: application/json', not '{content_type[:100]}'"
        raise ApiError(415, problem, param="Content-Type", code="unsupported_media_type")
    for name, _, value in (option.partition("=") for option in options):
        if name.strip() == "charset" and value.strip(' "') not in UTF_8:
            problem = f"Content-Type: the body must be in UTF-8, not in '{value.strip()[:100]}'"
            raise ApiError(415, problem, param="Content-Type", code="unsupported_media_type")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        # Decompressing would let a small request become a huge one.
        problem = f"send the body as it is, without Content-Encoding '{encoding[:100]}'"
        raise ApiError(415, problem, param="Content-Encoding", code="unsupported_media_type")


async def _read_while_taken(request: Request, server: ServerContext) -> bytes:
    """Without this a client that sends half a request would hold up the server's end."""
    reading = asyncio.ensure_future(_read_limited(request, server.config.max_body_bytes))
    refusing = asyncio.ensure_future(server.state.refusing())
    try:
        patience = server.config.receive_timeout
        await asyncio.wait({reading, refusing}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        raise refusing.result() if refusing.done() else took_too_long("the request's body", patience)
    finally:
        await end_tasks(reading, refusing)


async def _read_limited(request: Request, max_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    received = bytearray()
    try:
        async for chunk in request.stream():
            received += chunk
            if len(received) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise ApiError(400, "the connection closed before the body was complete", code="incomplete_body") from None
    return bytes(received)


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(413, f"the request body is larger than {max_bytes} bytes", code="request_too_large", headers=CLOSE)


def _explain(error: ValidationError, model: type[RequestBody]) -> ApiError:
    """The first problem, in the user's terms."""
    first = error.errors(include_url=False)[0]
    kind, where = first["type"], first["loc"]
    if kind == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {_reason(first)}", code="invalid_json")
    if not where:
        return ApiError(400, "the body must be a JSON object", code="invalid_type")
    param = _path(where)
    if kind == "extra_forbidden":
        hint = _hint(param, model) if len(where) == 1 else ""
        message = f"unknown field '{param}'{hint and f'; {hint}'}"
        return ApiError(400, message, param=param, code="unknown_field")
    if kind == "missing":
        return ApiError(400, f"the field '{param}' is required", param=param, code="missing_field")
    problem = str(InvalidRequestError(param, first["input"], _reason(first)))
    return ApiError(400, problem, param=param, code="invalid_value")


def _hint(field: str, model: type[RequestBody]) -> str:
    """What may have been meant by a field that this endpoint does not have."""
    other = TAKEN_BY.get(field)
    return f"{other} takes it" if other else did_you_mean(field, model.model_fields)


def _reason(problem: Any) -> str:
    detail = problem.get("ctx", {}).get("error", problem["msg"])
    return re.sub(r"^(Input|List|String|Dictionary) should (be|have)", r"must \2", str(detail))


def _path(where: tuple[int | str, ...]) -> str:
    """`messages[0].content` from `('messages', 0, 'content')`; union members and `[key]` marks are left out."""
    path = ""
    for part in where:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier():
            path += f".{part}" if path else part
        elif not path:
            path = json.dumps(part)[1:-1]  # an unknown field may be called anything
    return path
