"""POST /v1/embeddings."""

import asyncio
import base64
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.embedding import EmbeddingOutput
from octavo.errors import EngineDrainingError, InvalidRequestError, QueueFullError
from octavo.request.outputs import FinishReason
from octavo.request.pooling import PoolingParams
from octavo.server.access_log import FIGURES, RequestFigures
from octavo.server.body import read_body
from octavo.server.context import ServerContext, tenant_of
from octavo.server.delivery import asks
from octavo.server.endpoints import json_response
from octavo.server.errors import REQUEST_ID, ApiError, aborted
from octavo.server.key_limits import METER
from octavo.server.openai.embedding_body import EmbeddingBody
from octavo.server.openai.sampling import check_cache_salt, check_priority
from octavo.server.prompts import check_ids, check_input_length, encode_text, fit_input
from octavo.server.respond import while_wanted
from octavo.server.tracing.request_trace import Asked, current_trace

WAITING_PER_PLACE = 2
"""Inputs of one request that are in the engine at one time, per sequence that it runs: enough to fill every step, and
not so many that a long list fills the queue for others."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingOrder:
    """What a request asks of the engine."""

    request_id: str
    inputs: list[list[int]]
    params: PoolingParams
    tenant: str
    priority: int
    cache_salt: str | None
    as_base64: bool
    arrival: float


class Embeddings:
    """The endpoint."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def __call__(self, request: Request) -> Response:
        """Answers one request."""
        arrival = self._server.clock()
        body = await read_body(request, EmbeddingBody, self._server)
        model = self._server.model_name(body.model)
        order = await self._order(body, arrival, tenant_of(request))
        return await while_wanted(self._answer(order, model), request, self._server)

    async def _answer(self, order: EmbeddingOrder, model: str) -> Response:
        embedding = Embedding(self._server, order)
        data = await embedding.run()
        return json_response(
            {
                "id": order.request_id,
                "object": "list",
                "created": int(self._server.wall_clock()),
                "model": model,
                "data": data,
                "usage": embedding.usage(),
            }
        )

    async def _order(self, body: EmbeddingBody, arrival: float, tenant: str) -> EmbeddingOrder:
        params = PoolingParams(
            pooling=body.pooling or "last", normalize=body.normalize is not False, dimensions=body.dimensions
        )
        _check_dimensions(params, self._server.engine.info.hidden_size)
        return EmbeddingOrder(
            request_id=f"embd-{uuid.uuid4().hex}",
            priority=check_priority(body, self._server.engine.info),
            cache_salt=check_cache_salt(body),
            inputs=[await self._encode(body, each, index) for index, each in enumerate[str | list[int]](body.input)],
            params=params,
            tenant=tenant,
            as_base64=body.encoding_format == "base64",
            arrival=arrival,
        )

    async def _encode(self, body: EmbeddingBody, given: str | list[int], index: int) -> list[int]:
        await asyncio.sleep(0)  # an input of many may be short, all of them together are not: others get their turn
        engine = self._server.engine
        field = "input" if len(body.input) == 1 else f"input[{index}]"
        if isinstance(given, str):
            if engine.tokenizer is None:
                raise InvalidRequestError(field, given, "this server runs without a tokenizer: send token ids")
            if body.truncate_prompt_tokens is None:  # what certainly does not fit is refused unread
                least = engine.tokenizer.least_tokens(given)
                check_input_length(least, engine.info, field, counted="at least ")
            token_ids = await encode_text(engine.tokenizer, given, add_special=body.add_special_tokens is not False)
        else:
            check_ids(given, engine.info.vocab_size, field)
            token_ids = given
        return fit_input(
            token_ids, engine.info, truncate=body.truncate_prompt_tokens, side=body.truncation_side, field=field
        )


class Embedding:
    """The vectors of one HTTP request: a bounded number of its inputs are in the engine at one time; abandoned
    together."""

    def __init__(self, server: ServerContext, order: EmbeddingOrder) -> None:
        self._server = server
        self._order = order
        self._data: dict[int, msgspec.Raw] = {}
        self._num_cached_tokens = 0
        self._num_ended = 0
        self._figures = FIGURES.get() or RequestFigures()
        self._trace = current_trace()

    async def run(self) -> list[msgspec.Raw]:
        """The entries of `data`, in the order of the inputs, encoded as they come: a large list would hold up the
        event loop.

        Raises:
            ApiError: one of the inputs failed; the others are ended, since the answer is one.
            QueueFullError, EngineDeadError: as the engine says.
        """
        prompt_lens = [len(token_ids) for token_ids in self._order.inputs]
        METER.get().take_prompt(sum(prompt_lens))
        self._trace.asks(Asked(request_id=self._order.request_id, prompt_lens=prompt_lens))
        unfinished = FinishReason.ABORT
        try:
            await self._run_all()
        except (QueueFullError, EngineDrainingError) as error:
            self._reject("queue_full" if isinstance(error, QueueFullError) else "draining")
            raise
        except Exception:
            unfinished = FinishReason.ERROR
            raise
        finally:
            self._server.metrics.finished[unfinished].inc(len(self._order.inputs) - self._num_ended)
            self._trace.others_ended(unfinished)
        return [self._data[index] for index in range(len(self._order.inputs))]

    async def _run_all(self) -> None:
        asks(self._order.request_id, self._order.tenant)
        todo = iter(range(len(self._order.inputs)))
        most = WAITING_PER_PLACE * self._server.engine.info.max_num_seqs
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(most, len(self._order.inputs))):
                    group.create_task(self._work(todo))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _work(self, todo: Iterator[int]) -> None:
        order = self._order
        for index in todo:
            output = await self._server.engine.embed(
                order.inputs[index],
                order.params,
                request_id=f"{order.request_id}-{index}" if len(order.inputs) > 1 else order.request_id,
                tenant=order.tenant,
                priority=order.priority,
                cache_salt=order.cache_salt,
                group=order.request_id,
                alias=REQUEST_ID.get(),
            )
            self._take(index, output)

    def _take(self, index: int, output: EmbeddingOutput) -> None:
        """Counts an input that has ended, and keeps its entry.

        Raises:
            ApiError: it has no vector.
        """
        self._num_ended += 1
        self._num_cached_tokens += output.num_cached_tokens
        self._figures.see_vector(len(output.prompt_token_ids), output.num_cached_tokens, output.finish_reason)
        self._trace.ended((index, 0), output.finish_reason, output.stats)
        metrics = self._server.metrics
        metrics.finished[output.finish_reason].inc()
        metrics.e2e.observe(self._server.clock() - self._order.arrival)
        metrics.prompt_tokens.observe(len(output.prompt_token_ids))
        if output.stats is not None:
            metrics.observe_stats(output.stats)
        if output.finish_reason is FinishReason.ABORT:
            raise aborted()
        if not output.vector:
            raise ApiError(output.error_status, output.error or "no vector came of it", code="embedding_failed")
        self._data[index] = msgspec.Raw(self._entry(index, output))

    def _entry(self, index: int, output: EmbeddingOutput) -> bytes:
        as_base64 = self._order.as_base64
        vector = base64.b64encode(output.vector).decode() if as_base64 else output.embedding
        return msgspec.json.encode({"object": "embedding", "index": index, "embedding": vector})

    def usage(self) -> dict[str, object]:
        """Tokens of all inputs."""
        num_tokens = sum(map(len, self._order.inputs))
        return {
            "prompt_tokens": num_tokens,
            "total_tokens": num_tokens,
            "prompt_tokens_details": {"cached_tokens": self._num_cached_tokens},
        }

    def _reject(self, reason: str) -> None:
        """The engine did not take the request: it counts as rejected, and none of its inputs as ended."""
        METER.get().give_back_prompts()
        self._server.metrics.rejected(reason).inc()
        self._num_ended = len(self._order.inputs)
        self._trace.refused()


def _check_dimensions(params: PoolingParams, hidden_size: int) -> None:
    if params.dimensions is not None and params.dimensions > hidden_size:
        problem = f"the model's vectors have {hidden_size} numbers"
        raise InvalidRequestError("dimensions", params.dimensions, problem)
