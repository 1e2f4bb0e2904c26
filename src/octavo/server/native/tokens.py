"""POST /tokenize and POST /detokenize."""

from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.body import read_body
from octavo.server.context import ServerContext
from octavo.server.conversation.rendering import render
from octavo.server.endpoints import json_response
from octavo.server.fields import Honoured, RequestBody
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.chat_conversation import conversation_of
from octavo.server.openai.message import Messages
from octavo.server.prompts import check_ids, decode_ids, encode_text
from octavo.server.serving_engine import TextCodec


class TokenizeBody(RequestBody):
    """A text, or a conversation as the chat endpoint would see it."""

    model: Annotated[str | None, Honoured("404 if it is not served")] = None
    prompt: Annotated[str | None, Honoured("a text")] = None
    messages: Annotated[Messages | None, Honoured("a conversation, in place of `prompt`")] = None
    add_special_tokens: Annotated[bool | None, Honoured("true by default: the ids that stand around a text")] = None
    parse_special_tokens: Annotated[bool | None, Honoured("false by default: their spellings are text")] = None
    add_generation_prompt: Annotated[bool | None, Honoured("with `messages`; true by default")] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, Honoured("with `messages`")] = None
    return_token_strs: Annotated[bool | None, Honoured("`token_strs` beside `tokens`")] = None


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
            tokenizer = self._tokenizer("return_token_strs")
            answer["token_strs"] = [tokenizer.token_bytes(i).decode("utf-8", "replace") for i in token_ids]
        return json_response(answer)

    async def _encode(self, body: TokenizeBody) -> list[int]:
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequestError("prompt", body.prompt, "give either 'prompt' or 'messages'")
        if body.messages is not None:
            chat = ChatBody(
                messages=body.messages,
                add_generation_prompt=body.add_generation_prompt,
                chat_template_kwargs=body.chat_template_kwargs,
            )
            return await render(self._server.engine, conversation_of(chat, self._server.config))
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
