"""POST /v1/completions."""

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
from octavo.server.conversation.reasoning_markers import budget_of_prompts
from octavo.server.fill_in import FillInTokens, fill_in_prompt, fill_in_tokens
from octavo.server.openai.answer import SpelledAnswer
from octavo.server.openai.answer_shape import answer_shape
from octavo.server.openai.completion_body import CompletionBody
from octavo.server.openai.completion_format import CompletionFormat
from octavo.server.openai.sampling import (
    answer_options,
    check_streaming,
    generation_order,
    sampling_params,
)
from octavo.server.prompts import Prompt, encode_prompt, fit_prompt
from octavo.server.respond import respond

DEFAULT_MAX_TOKENS = 16
MAX_ANSWERS = 4096
"""Of one request: all its prompts' choices."""


class Completions:
    """The endpoint."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def __call__(self, request: Request) -> Response:
        """Answers one request."""
        arrival = self._server.clock()
        body = await read_body(request, CompletionBody, self._server)
        model = self._server.model_name(body.model)
        answer = await self.answer(body, arrival=arrival, tenant=tenant_of(request))
        shape = CompletionFormat(answer.order.options, self._server.engine.tokenizer)
        spelled = SpelledAnswer(self._server, answer, shape, model=model, stream_options=body.stream_options)
        return await respond(request, self._server, spelled, stream=bool(body.stream))

    async def answer(self, body: CompletionBody, *, arrival: float, tenant: str) -> Answer:
        """What a body asks for; nothing runs before it is read.

        Raises:
            InvalidRequestError, ApiError: it cannot be honoured.
        """
        return Answer(self._server, await self._order(body, arrival, tenant))

    async def _order(self, body: CompletionBody, arrival: float, tenant: str) -> AnswerOrder:
        check_streaming(body)
        _check_best_of(body)
        _check_named_logprobs(body)
        _check_num_answers(body)
        _check_one_prompt(body)
        params = self._params(body)
        options = self._options(body, params)
        markers = self._markers(body)
        if markers is not None and not params.ignore_eos:
            params = params.replace(stop_token_ids=tuple(dict.fromkeys((*params.stop_token_ids, *markers.end_ids))))
        prompts = [await self._prompt(body, prompt, params, markers) for prompt in body.prompt]
        params = self._with_budget(body, prompts, params)
        generation = generation_order(
            body,
            self._server.engine.info,
            request_id=f"cmpl-{uuid.uuid4().hex}",
            prompts=[prompt.token_ids for prompt in prompts],
            params=params,
            tenant=tenant,
        )
        return AnswerOrder(generation=generation, prompts=prompts, options=options, arrival=arrival)

    def _with_budget(self, body: CompletionBody, prompts: list[Prompt], params: SamplingParams) -> SamplingParams:
        if body.thinking_token_budget in (None, -1):
            return params
        return params.replace(
            reasoning=budget_of_prompts(
                self._server,
                [prompt.token_ids for prompt in prompts],
                shape=params.structured_outputs,
                budget=body.thinking_token_budget,
            )
        )

    def _options(self, body: CompletionBody, params: SamplingParams) -> AnswerOptions:
        return replace(answer_options(body, params), echo=bool(body.echo), discard_output=body.max_tokens == 0)

    def _params(self, body: CompletionBody) -> SamplingParams:
        """max_tokens=0 asks the engine for one token, which a prompt's last step yields anyway."""
        if body.logprobs is not None and self._server.engine.tokenizer is None:
            raise InvalidRequestError("logprobs", body.logprobs, "this server runs without a tokenizer to spell tokens")
        max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens or 1
        echoed = body.logprobs if body.echo else None
        asked = [count for count in (body.prompt_logprobs, echoed) if count is not None]
        return sampling_params(
            body,
            self._server.engine.info.sampling_defaults,
            max_tokens=max_tokens,
            logprobs=body.logprobs,
            prompt_logprobs=max(asked, default=None),
            detokenize=self._server.engine.tokenizer is not None,
        ).replace(structured_outputs=answer_shape(body))

    def _markers(self, body: CompletionBody) -> FillInTokens | None:
        """The tokens around prompt and suffix; None if there is no suffix.

        Raises:
            InvalidRequestError: the model cannot fill in, or not under these options.
        """
        tokenizer = self._server.engine.tokenizer
        if not body.suffix:
            return None
        if body.echo or body.truncate_prompt_tokens is not None:
            raise InvalidRequestError("suffix", body.suffix, "cannot go with echo or truncate_prompt_tokens")
        markers = None if tokenizer is None else fill_in_tokens(tokenizer)
        if markers is None:
            problem = "this model was not trained to fill in the middle: its vocabulary has no tokens for that"
            raise InvalidRequestError("suffix", body.suffix, problem)
        return markers

    async def _prompt(
        self, body: CompletionBody, prompt: str | list[int], params: SamplingParams, markers: FillInTokens | None
    ) -> Prompt:
        engine, echo = self._server.engine, bool(body.echo)
        if markers is not None and engine.tokenizer is not None:
            vocab_size, suffix = engine.info.vocab_size, body.suffix or ""
            encoded = Prompt(await fill_in_prompt(engine.tokenizer, markers, prompt, suffix, vocab_size))
        else:
            at_most = engine.info.max_model_len if body.truncate_prompt_tokens is None else None
            encoded = await encode_prompt(engine, prompt, echo=echo, at_most=at_most)
        fitted = fit_prompt(
            encoded.token_ids,
            engine.info,
            truncate=body.truncate_prompt_tokens,
            side=body.truncation_side,
            max_tokens=params.max_tokens,
            field="prompt",
        )
        if len(fitted) == len(encoded.token_ids):
            return encoded
        return await encode_prompt(engine, fitted, echo=echo)


def _check_num_answers(body: CompletionBody) -> None:
    count = len(body.prompt) * (body.n or 1)
    if count > MAX_ANSWERS:
        raise InvalidRequestError(
            "n", body.n, f"{len(body.prompt)} prompts make {count} answers, of at most {MAX_ANSWERS}"
        )


def _check_one_prompt(body: CompletionBody) -> None:
    if body.session_id is not None and len(body.prompt) > 1:
        raise InvalidRequestError("session_id", body.session_id, f"goes with one prompt, not with {len(body.prompt)}")


def _check_named_logprobs(body: CompletionBody) -> None:
    if body.logprob_token_ids and body.max_tokens == 0:
        problem = "are those of the answer's positions, and max_tokens=0 asks for none"
        raise InvalidRequestError("logprob_token_ids", body.logprob_token_ids, problem)


def _check_best_of(body: CompletionBody) -> None:
    n = 1 if body.n is None else body.n
    if body.best_of is not None and body.best_of != n:
        raise InvalidRequestError("best_of", body.best_of, f"only a value equal to n={n} is supported")
