"""POST /v1/chat/completions."""

import uuid
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from octavo.server.body import read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.conversation.answer import Answer, AnswerOrder
from octavo.server.conversation.pieces import AnswerOptions
from octavo.server.conversation.plan import AnswerPlan, plan_answer
from octavo.server.conversation.rendering import codec
from octavo.server.openai.answer import SpelledAnswer
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.chat_conversation import conversation_of
from octavo.server.openai.chat_format import ChatFormat
from octavo.server.openai.sampling import (
    answer_options,
    check_streaming,
    generation_order,
    sampling_params,
)
from octavo.server.prompts import Prompt, decode_ids, fit_prompt
from octavo.server.respond import respond
from octavo.server.spelling import respelled
from octavo.text.messages import PART_SEPARATOR


class ChatCompletions:
    """The endpoint."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def __call__(self, request: Request) -> Response:
        """Answers one request."""
        arrival = self._server.clock()
        body = await read_body(request, ChatBody, self._server)
        model = self._server.model_name(body.model)
        answer = await self.answer(body, arrival=arrival, tenant=tenant_of(request))
        shape = ChatFormat(answer.order.options, self._server.engine.tokenizer)
        spelled = SpelledAnswer(self._server, answer, shape, model=model, stream_options=body.stream_options)
        return await respond(request, self._server, spelled, stream=bool(body.stream))

    async def answer(self, body: ChatBody, *, arrival: float, tenant: str) -> Answer:
        """What a body asks for; nothing runs before it is read.

        Raises:
            InvalidRequestError, ApiError: it cannot be honoured.
        """
        with respelled(_spellings(body)):
            return Answer(self._server, await self._order(body, arrival, tenant))

    async def _order(self, body: ChatBody, arrival: float, tenant: str) -> AnswerOrder:
        check_streaming(body)
        params = self._params(body)
        plan = await plan_answer(self._server, conversation_of(body, self._server.config))
        params = plan.complete(params)
        prompt = await self._prompt(body, plan, params)
        order = generation_order(
            body,
            self._server.engine.info,
            request_id=f"chatcmpl-{uuid.uuid4().hex}",
            prompts=[prompt.token_ids],
            params=params,
            tenant=tenant,
        )
        return AnswerOrder(generation=order, prompts=[prompt], options=_options(body, params, plan), arrival=arrival)

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

    async def _prompt(self, body: ChatBody, plan: AnswerPlan, params: SamplingParams) -> Prompt:
        fitted = fit_prompt(
            plan.token_ids,
            self._server.engine.info,
            truncate=body.truncate_prompt_tokens,
            side=body.truncation_side,
            max_tokens=params.max_tokens,
            field="messages",
        )
        if not body.return_prompt_text:
            return Prompt(fitted)
        return Prompt(fitted, await decode_ids(codec(self._server.engine), fitted, skip_special=False))


def _options(body: ChatBody, params: SamplingParams, plan: AnswerPlan) -> AnswerOptions:
    reading = replace(plan.reading, lead=_echoed(body)) if body.echo else plan.reading
    options = answer_options(body, params)
    return replace(options, reading=reading, return_prompt_text=bool(body.return_prompt_text))


def _echoed(body: ChatBody) -> str:
    """The text of the message that the answer goes on with.

    Raises:
        InvalidRequestError: it goes on with none.
    """
    if not body.continue_final_message:
        raise InvalidRequestError("echo", True, "gives back the message that the answer continues; there is none")
    content = body.plain_messages()[-1]["content"]
    return content if isinstance(content, str) else PART_SEPARATOR.join(part["text"] for part in content)


def _spellings(body: ChatBody) -> dict[str, str]:
    spellings = {"prompt": "messages", "logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        spellings["max_tokens"] = "max_completion_tokens"
    return spellings
