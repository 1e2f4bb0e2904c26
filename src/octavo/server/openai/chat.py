"""POST /v1/chat/completions."""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from octavo.server.body import read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.errors import ApiError
from octavo.server.generation import GenerationOrder
from octavo.server.openai.answer import Answer, AnswerOrder, finish_reason
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.choices import AnswerOptions, Piece, PromptWriter
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprob_rows
from octavo.server.openai.prompts import LONG_TEXT_CHARS, Prompt, fit_prompt
from octavo.server.openai.respond import respond
from octavo.server.openai.sampling import (
    check_cache_salt,
    check_priority,
    check_session,
    check_streaming,
    sampling_params,
)
from octavo.server.serving_engine import ServingEngine, TextCodec


class ChatFormat:
    """The shape of a chat completion. The role comes with the first text, not in a chunk of its own: a chunk without a
    token would look like a token to anyone who measures."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, options: AnswerOptions, tokenizer: TextCodec | None) -> None:
        self._options = options
        self._tokenizer = tokenizer

    def choice(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A whole choice."""
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return self._with(piece, prompt, {"message": message})

    def delta(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A part of a choice."""
        delta = {"role": "assistant", "content": piece.text} if piece.first else {"content": piece.text}
        return self._with(piece, prompt, {"delta": delta if piece.first or piece.text else {}})

    def _with(self, piece: Piece, prompt: PromptWriter, content: dict[str, Any]) -> dict[str, Any]:
        logprobs = None if self._options.num_top_logprobs is None else chat_logprobs(piece.scored)
        choice: dict[str, Any] = {"index": piece.index, **content, "logprobs": logprobs}
        choice |= {"finish_reason": finish_reason(piece.finish_reason), "stop_reason": piece.stop_reason}
        if self._options.return_token_ids:
            choice["token_ids"] = piece.token_ids
            choice["prompt_token_ids"] = prompt.prompt.token_ids if piece.first else None
        return choice

    def beside_choices(self, prompts: Sequence[PromptWriter]) -> dict[str, Any]:
        """vLLM puts the prompt's facts here, since a chat has one prompt."""
        (prompt,) = prompts
        facts: dict[str, Any] = {}
        if self._options.return_token_ids:
            facts["prompt_token_ids"] = prompt.prompt.token_ids
        count = self._options.num_prompt_logprobs
        if count is not None:
            facts["prompt_logprobs"] = prompt_logprob_rows(self._tokenizer, prompt.prompt_rows or (), count)
        return facts


class ChatCompletions:
    """The endpoint."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def __call__(self, request: Request) -> Response:
        """Answers one request."""
        arrival = self._server.clock()
        body = await read_body(request, ChatBody, self._server)
        with _chat_spellings(body):
            order = await self._order(body, arrival, tenant_of(request))
            answer = Answer(self._server, order)
        return await respond(request, self._server, answer, stream=bool(body.stream))

    async def _order(self, body: ChatBody, arrival: float, tenant: str) -> AnswerOrder:
        engine, model = self._server.engine, self._server.model_name(body.model)
        check_streaming(body)
        params = self._params(body)
        prompt = await self._prompt(body, params)
        order = GenerationOrder(
            request_id=f"chatcmpl-{uuid.uuid4().hex}",
            prompts=[prompt.token_ids],
            params=params,
            tenant=tenant,
            priority=check_priority(body, self._server.engine.info),
            cache_salt=check_cache_salt(body),
            session=check_session(body),
        )
        options = AnswerOptions(
            num_top_logprobs=params.logprobs,
            num_prompt_logprobs=body.prompt_logprobs,
            return_token_ids=bool(body.return_token_ids),
            skip_special=params.skip_special_tokens,
        )
        return AnswerOrder(
            generation=order,
            prompts=[prompt],
            options=options,
            format=ChatFormat(options, engine.tokenizer),
            model=model,
            arrival=arrival,
            stream_options=body.stream_options,
        )

    def _params(self, body: ChatBody) -> SamplingParams:
        """Parameters; the number of logprobs is top_logprobs where logprobs is true."""
        if body.top_logprobs is not None and not body.logprobs:
            raise InvalidRequestError("top_logprobs", body.top_logprobs, "needs logprobs=true")
        given = body.max_completion_tokens
        return sampling_params(
            body,
            self._server.engine.info.sampling_defaults,
            max_tokens=body.max_tokens if given is None else given,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            prompt_logprobs=body.prompt_logprobs,
            detokenize=True,
        )

    async def _prompt(self, body: ChatBody, params: SamplingParams) -> Prompt:
        token_ids = await render_chat(self._server.engine, body)
        fitted = fit_prompt(
            token_ids,
            self._server.engine.info,
            truncate=body.truncate_prompt_tokens,
            side=body.truncation_side,
            max_tokens=params.max_tokens,
            field="messages",
        )
        return Prompt(fitted)


async def render_chat(engine: ServingEngine, body: ChatBody) -> list[int]:
    """Token ids of a conversation; long ones are rendered in a thread, so that they hold up nobody.

    Raises:
        InvalidRequestError: the model cannot chat, or its template refuses the conversation.
    """
    if engine.tokenizer is None or engine.template is None:
        what = "tokenizer" if engine.tokenizer is None else "chat template"
        fix = (
            "use /v1/completions, or start the server with --chat-template FILE"
            if what != "tokenizer"
            else ("send token ids to /v1/completions")
        )
        raise InvalidRequestError("messages", "...", f"this model has no {what}: {fix}")
    messages = body.plain_messages()
    generation_prompt = body.add_generation_prompt is not False
    variables = body.chat_template_kwargs

    def render() -> list[int]:
        return engine.render_chat(messages, add_generation_prompt=generation_prompt, variables=variables)

    size = sum(len(str(message["content"])) for message in messages)
    return await asyncio.to_thread(render) if size > LONG_TEXT_CHARS else render()


@contextmanager
def _chat_spellings(body: ChatBody) -> Iterator[None]:
    """Names fields in errors as this endpoint's users spell them."""
    spellings = {"prompt": "messages", "logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        spellings["max_tokens"] = "max_completion_tokens"
    try:
        yield
    except InvalidRequestError as error:
        if error.field not in spellings:
            raise
        raise InvalidRequestError(spellings[error.field], error.value, error.problem) from None
    except ApiError as error:
        if error.param not in spellings:
            raise
        field = spellings[error.param]
        message = error.message.replace(error.param, field)
        raise ApiError(error.status, message, param=field, code=error.code) from None
