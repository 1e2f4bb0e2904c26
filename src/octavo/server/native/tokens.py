"""POST /tokenize and POST /detokenize."""

from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.body import read_body
from octavo.server.context import ServerContext
from octavo.server.conversation.plan import plan_answer
from octavo.server.endpoints import json_response
from octavo.server.fields import Honoured, RequestBody
from octavo.server.json_object import JsonObject
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.chat_conversation import conversation_of
from octavo.server.openai.message import Messages
from octavo.server.openai.tool_body import ChoiceField, FunctionTool
from octavo.server.prompts import check_ids, decode_ids, encode_text, spell_each
from octavo.server.serving_engine import TextCodec


class TokenizeBody(RequestBody):
    """A text, or a conversation as the chat endpoint would see it."""

    model: Annotated[str | None, Honoured("404 if it is not served")] = None
    prompt: Annotated[str | None, Honoured("a text")] = None
    messages: Annotated[Messages | None, Honoured("a conversation, in place of `prompt`")] = None
    add_special_tokens: Annotated[bool | None, Honoured("true by default: the ids that stand around a text")] = None
    parse_special_tokens: Annotated[bool | None, Honoured("false by default: their spellings are text")] = None
    tools: Annotated[list[FunctionTool] | None, Honoured("with `messages`")] = None
    tool_choice: Annotated[ChoiceField, Honoured("with `messages`; `none`: the model is not told of tools")] = None
    documents: Annotated[list[JsonObject] | None, Honoured("with `messages`")] = None
    reasoning_effort: Annotated[str | None, Honoured("with `messages`")] = None
    add_generation_prompt: Annotated[bool | None, Honoured("with `messages`; true by default")] = None
    continue_final_message: Annotated[bool | None, Honoured("with `messages`")] = None
    chat_template: Annotated[str | None, Honoured("with `messages`; only with `--trust-request-chat-template`")] = None
    chat_template_kwargs: Annotated[JsonObject | None, Honoured("with `messages`")] = None
    return_token_strs: Annotated[bool | None, Honoured("`token_strs` beside `tokens`")] = None


CHAT_FIELDS = (
    "tools",
    "tool_choice",
    "documents",
    "reasoning_effort",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
)
"""Fields of a conversation, as in chat completions."""


class DetokenizeBody(RequestBody):
    """Token ids."""

    model: Annotated[str | None, Honoured("404 if it is not served")] = None
    tokens: Annotated[list[int], Honoured("token ids")]
    skip_special_tokens: Annotated[bool | None, Honoured("false by default: special tokens are spelled")] = None


class Tokens:
    """Both endpoints."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text or conversation."""
        body = await read_body(request, TokenizeBody, self._server)
        self._server.model_name(body.model)
        token_ids = await self._encode(body)
        answer: dict[str, Any] = {
            "tokens": token_ids,
            "count": len(token_ids),
            "max_model_len": self._server.engine.info.max_model_len,
        }
        if body.return_token_strs:
            answer["token_strs"] = await spell_each(self._tokenizer("return_token_strs"), token_ids)
        return json_response(answer)

    async def _encode(self, body: TokenizeBody) -> list[int]:
        given = [name for name in CHAT_FIELDS if getattr(body, name) is not None]
        if body.messages is None and given:
            raise InvalidRequestError(given[0], getattr(body, given[0]), "goes with 'messages'")
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequestError("prompt", body.prompt, "give either 'prompt' or 'messages'")
        if body.messages is not None:
            chat = ChatBody(messages=body.messages, **{name: getattr(body, name) for name in CHAT_FIELDS})
            return (await plan_answer(self._server, conversation_of(chat, self._server.config))).token_ids
        return await encode_text(
            self._tokenizer("prompt"),
            body.prompt or "",
            add_special=body.add_special_tokens is not False,
            parse_special=bool(body.parse_special_tokens),
        )

    async def detokenize(self, request: Request) -> Response:
        """Text of token ids."""
        body = await read_body(request, DetokenizeBody, self._server)
        self._server.model_name(body.model)
        check_ids(body.tokens, self._server.engine.info.vocab_size, "tokens")
        tokenizer, skip_special = self._tokenizer("tokens"), bool(body.skip_special_tokens)
        return json_response({"prompt": await decode_ids(tokenizer, body.tokens, skip_special=skip_special)})

    def _tokenizer(self, field: str) -> TextCodec:
        if self._server.engine.tokenizer is None:
            raise InvalidRequestError(field, "...", "this server runs without a tokenizer (--skip-tokenizer-init)")
        return self._server.engine.tokenizer
