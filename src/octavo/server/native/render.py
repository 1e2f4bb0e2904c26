"""POST /render: what the engine would be asked, without asking it."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.anthropic.endpoint import Messages
from octavo.server.anthropic.messages_body import MessagesBody
from octavo.server.body import parse_body, read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.conversation.answer import Answer
from octavo.server.endpoints import json_response
from octavo.server.fields import Honoured, RequestBody
from octavo.server.key_limits import unmetered
from octavo.server.openai.chat import ChatCompletions
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.completion_body import CompletionBody
from octavo.server.openai.completions import Completions
from octavo.server.prompts import Prompt, decode_ids
from octavo.server.responses.endpoint import Responses
from octavo.server.responses.response_body import ResponseBody

Body = TypeVar("Body", bound=RequestBody)
Reader = Callable[[bytes, str], Awaitable[Answer]]
"""From the text of a body and the tenant to what it asks for."""


class RenderBody(RequestBody):
    """A request to another endpoint, as a line of a batch file has it."""

    url: Annotated[
        Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"],
        Honoured("the endpoint that it is for"),
    ]
    body: Annotated[dict[str, Any], Honoured("what would be sent there; it is refused as it would be refused there")]


class Render:
    """The endpoint."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        chat, completions, responses, messages = (
            ChatCompletions(server),
            Completions(server),
            Responses(server),
            Messages(server),
        )

        async def chat_answer(body: ChatBody, tenant: str) -> Answer:
            server.model_name(body.model)
            return await chat.answer(body, arrival=server.clock(), tenant=tenant)

        async def completion_answer(body: CompletionBody, tenant: str) -> Answer:
            server.model_name(body.model)
            return await completions.answer(body, arrival=server.clock(), tenant=tenant)

        async def response_answer(body: ResponseBody, tenant: str) -> Answer:
            server.model_name(body.model)
            return (await responses.order(body, arrival=server.clock(), tenant=tenant)).answer

        async def message_answer(body: MessagesBody, tenant: str) -> Answer:
            server.model_name(body.model)
            return (await messages.order(body, arrival=server.clock(), tenant=tenant)).answer

        self._readers: dict[str, Reader] = {
            "/v1/chat/completions": _reader(ChatBody, chat_answer),
            "/v1/completions": _reader(CompletionBody, completion_answer),
            "/v1/responses": _reader(ResponseBody, response_answer),
            "/v1/messages": _reader(MessagesBody, message_answer),
        }

    async def answer(self, request: Request) -> Response:
        """The prompts of a request in tokens and text, and its sampling parameters as the engine would get them."""
        asked = await read_body(request, RenderBody, self._server)
        with unmetered():
            answer = await self._readers[asked.url](msgspec.json.encode(asked.body), tenant_of(request))
        return json_response(
            {
                "object": "render",
                "url": asked.url,
                "max_model_len": self._server.engine.info.max_model_len,
                "prompts": [await self._prompt(prompt) for prompt in answer.order.prompts],
                "sampling_params": msgspec.to_builtins(answer.order.generation.params, str_keys=True),
            }
        )

    async def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        tokenizer, token_ids = self._server.engine.tokenizer, prompt.token_ids
        text = None if tokenizer is None else await decode_ids(tokenizer, token_ids, skip_special=False)
        return {"text": text, "token_ids": token_ids, "num_tokens": len(token_ids)}


def _reader(model: type[Body], answer: Callable[[Body, str], Awaitable[Answer]]) -> Reader:
    async def read(raw: bytes, tenant: str) -> Answer:
        return await answer(parse_body(raw, model), tenant)

    return read
