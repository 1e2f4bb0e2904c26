"""/v1/sessions: prefixes that stay in the KV memory, of the key that asks. Those of others do not exist for it."""

import uuid
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.request.pin import PinRequest, SessionState
from octavo.server.body import read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.conversation.rendering import render
from octavo.server.endpoints import json_response
from octavo.server.fields import Honoured, RequestBody
from octavo.server.json_object import JsonObject
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.chat_conversation import conversation_of
from octavo.server.openai.message import Messages
from octavo.server.openai.sampling import pin_request
from octavo.server.prompts import encode_prompt, fit_prompt
from octavo.server.respond import while_wanted


def _prompt(value: Any) -> str | list[int] | None:
    is_ids = isinstance(value, list) and bool(value) and all(type(item) is int for item in value)
    if value is not None and not isinstance(value, str) and not is_ids:
        raise ValueError("must be a text or a list of token ids")
    return value  # type: ignore[no-any-return]


_PROMPT_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}


class SessionBody(RequestBody):
    """A session, and what it is to hold at once, if anything."""

    model: Annotated[str | None, Honoured("404 if it is not served")] = None
    session_id: Annotated[str | None, Honoured("1 to 128 of `A-Z a-z 0-9 . _ : -`; a new one if absent")] = None
    lease_s: Annotated[float | None, Honoured("seconds from its last use for which it lives; 600 at first")] = None
    prompt: Annotated[
        str | list[int] | None,
        PlainValidator(_prompt),
        WithJsonSchema(_PROMPT_SCHEMA),
        Honoured("text or token ids to compute and hold"),
    ] = None
    messages: Annotated[Messages | None, Honoured("a conversation, in place of `prompt`")] = None
    add_generation_prompt: Annotated[bool | None, Honoured("with `messages`; false by default")] = None
    chat_template_kwargs: Annotated[JsonObject | None, Honoured("with `messages`")] = None
    cache_salt: Annotated[str | None, Honoured("of the requests that are to find the prompt")] = None


class LeaseBody(RequestBody):
    """How long a session is to live."""

    lease_s: Annotated[float | None, Honoured("seconds from now and from each later use; absent: as before")] = None


class Sessions:
    """The endpoints."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def create(self, request: Request) -> Response:
        """Opens a session, or begins the lease of an open one anew. With a prompt or messages these are computed, if
        they are not cached, and held. Refused with numbers if they cannot be: 400 for good, 429 for now."""
        body = await read_body(request, SessionBody, self._server)
        pin = pin_request(body.session_id or f"session-{uuid.uuid4().hex}", body.lease_s, lease_field="lease_s")
        self._server.model_name(body.model)
        prompt = await self._prompt_ids(body)
        with self._server.taking_requests(), self._server.state.admitted():
            work = self._open(pin, prompt, tenant_of(request), body.cache_salt)
            return await while_wanted(work, request, self._server)

    async def list_all(self, request: Request) -> Response:
        """The sessions of this key, oldest first."""
        states = await self._server.engine.sessions(tenant=tenant_of(request))
        return json_response({"object": "list", "data": [self._entry(state) for state in states]})

    async def retrieve(self, request: Request) -> Response:
        """One session of this key."""
        state = await self._server.engine.session(_id(request), tenant=tenant_of(request))
        return json_response(self._entry(state))

    async def extend(self, request: Request) -> Response:
        """Begins a session's lease anew."""
        body = await read_body(request, LeaseBody, self._server)
        state = await self._server.engine.session(_id(request), tenant=tenant_of(request))
        pin = pin_request(state.session_id, body.lease_s, lease_field="lease_s")
        return json_response(self._entry(await self._server.engine.extend_session(pin, tenant=tenant_of(request))))

    async def end(self, request: Request) -> Response:
        """Lets go of what a session holds. Its running requests go on, and leave nothing behind."""
        state = await self._server.engine.session(_id(request), tenant=tenant_of(request))
        await self._server.engine.end_session(state.session_id, tenant=tenant_of(request))
        return json_response({"id": state.session_id, "object": "session", "deleted": True})

    async def _open(self, pin: PinRequest, prompt: list[int] | None, tenant: str, cache_salt: str | None) -> Response:
        engine = self._server.engine
        if prompt is None:
            state = await engine.open_session(pin, tenant=tenant)
        else:
            state = await engine.pin(prompt, pin, tenant=tenant, cache_salt=cache_salt)
        return json_response(self._entry(state))

    async def _prompt_ids(self, body: SessionBody) -> list[int] | None:
        """
        Raises:
            InvalidRequestError, ApiError: what is to be held is no prompt of this model.
        """
        if body.cache_salt is not None and not 1 <= len(body.cache_salt) <= 128:
            raise InvalidRequestError("cache_salt", body.cache_salt, "must hold 1 to 128 characters")
        if body.prompt is not None and body.messages is not None:
            raise InvalidRequestError("prompt", body.prompt, "give either 'prompt' or 'messages'")
        info = self._server.engine.info
        if body.prompt is not None:
            prompt = await encode_prompt(self._server.engine, body.prompt, echo=False)
            return fit_prompt(prompt.token_ids, info, truncate=None, max_tokens=1, field="prompt")
        if body.messages is None:
            return None
        chat = ChatBody(
            messages=body.messages,
            add_generation_prompt=bool(body.add_generation_prompt),
            chat_template_kwargs=body.chat_template_kwargs,
        )
        token_ids = await render(self._server.engine, conversation_of(chat, self._server.config))
        return fit_prompt(token_ids, info, truncate=None, max_tokens=1, field="messages")

    def _entry(self, state: SessionState) -> dict[str, Any]:
        return {
            "id": state.session_id,
            "object": "session",
            "lease_s": state.lease_s,
            "expires_in_s": state.expires_in_s,
            "expires_at": int(self._server.wall_clock() + state.expires_in_s),
            "pinned_tokens": state.num_pinned_tokens,
            "pinned_blocks": state.num_pinned_blocks,
            "live_requests": state.num_live_requests,
        }


def _id(request: Request) -> str:
    return str(request.path_params["session_id"])
