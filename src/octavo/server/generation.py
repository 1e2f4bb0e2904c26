"""One HTTP request's generation: all its prompts, run together, abandoned together."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from octavo.engine.output import GenerationDelta
from octavo.errors import EngineDrainingError, OctavoError, PinBudgetError, QueueFullError
from octavo.request.outputs import FinishReason
from octavo.request.params import SamplingParams
from octavo.request.pin import PinRequest
from octavo.server.delivery import asks
from octavo.server.errors import REQUEST_ID, ApiError
from octavo.server.key_limits import METER
from octavo.server.metrics import RequestTracker
from octavo.server.serving_engine import ServingEngine
from octavo.server.tracing.request_trace import Asked, current_trace

Item = TypeVar("Item")

UNFULFILLABLE = 422
"""Status of a request that asks for what no token fulfils."""


@dataclass(frozen=True, kw_only=True)
class GenerationOrder:
    """What an endpoint asks of the engine."""

    request_id: str
    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    tenant: str = ""
    priority: int = 0
    cache_salt: str | None = None
    session: PinRequest | None = None
    """For an order of one prompt."""


def start(engine: ServingEngine, order: GenerationOrder) -> list[AsyncGenerator[GenerationDelta, None]]:
    """One stream of deltas per prompt. Nothing runs before they are read.

    Raises:
        InvalidRequestError: one of the prompts or the parameters cannot be honoured.
        ApiError: 429, the API key has used its tokens.
    """
    many = len(order.prompts) > 1
    streams = [
        engine.generate(
            prompt,
            order.params,
            request_id=f"{order.request_id}-{index}" if many else order.request_id,
            tenant=order.tenant,
            priority=order.priority,
            cache_salt=order.cache_salt,
            session=order.session,
            group=order.request_id,
            alias=REQUEST_ID.get(),
        )
        for index, prompt in enumerate(order.prompts)
    ]
    asks(order.request_id, order.tenant)
    prompt_lens = [len(prompt) for prompt in order.prompts]
    METER.get().take_prompt(sum(prompt_lens))
    current_trace().asks(Asked(request_id=order.request_id, prompt_lens=prompt_lens, params=order.params))
    return streams


async def run(
    streams: Sequence[AsyncGenerator[GenerationDelta, None]], tracker: RequestTracker
) -> AsyncGenerator[tuple[int, GenerationDelta], None]:
    """Yields (prompt index, delta) of all streams as they come. Closing this ends them all.

    Raises:
        ApiError: a choice failed; the others are ended, since the answer is one.
        QueueFullError, EngineDeadError: as the engine says.
    """
    unfinished, meter = FinishReason.ABORT, METER.get()
    try:
        async with aclosing(interleave(streams)) as deltas:
            async for prompt, delta in deltas:
                tracker.see(prompt, delta)
                meter.count_output(len(delta.choice.token_ids))
                _raise_failure(delta)
                yield prompt, delta
    except QueueFullError:
        tracker.reject("queue_full")
        meter.give_back_prompts()
        raise
    except EngineDrainingError:
        tracker.reject("draining")
        meter.give_back_prompts()
        raise
    except PinBudgetError:
        tracker.reject("pin_budget")
        meter.give_back_prompts()
        raise
    except OctavoError:
        unfinished = FinishReason.ERROR
        raise
    finally:
        tracker.close(unfinished)


def _raise_failure(delta: GenerationDelta) -> None:
    choice = delta.choice
    if choice.error is not None or choice.finish_reason is FinishReason.ERROR:
        message = choice.error or "generation failed"
        code = "unfulfillable" if choice.error_status == UNFULFILLABLE else "generation_failed"
        raise ApiError(choice.error_status, message, param=choice.error_field or None, code=code)


async def interleave(
    streams: Sequence[AsyncGenerator[Item, None]],
) -> AsyncGenerator[tuple[int, Item], None]:
    """Yields (stream index, item) as items come; ends when all have ended; the first exception ends them all."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    arrivals: asyncio.Queue[tuple[int, Item] | BaseException | None] = asyncio.Queue(maxsize=2 * len(streams))
    pumps = [asyncio.create_task(_pump(index, stream, arrivals)) for index, stream in enumerate(streams)]
    try:
        running = len(pumps)
        while running:
            arrival = await arrivals.get()
            if isinstance(arrival, BaseException):
                raise arrival
            if arrival is None:
                running -= 1
            else:
                yield arrival
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    index: int,
    stream: AsyncGenerator[Item, None],
    arrivals: "asyncio.Queue[tuple[int, Item] | BaseException | None]",
) -> None:
    """Moves a stream's items into the common queue; its end is None, its failure the exception."""
    try:
        async with aclosing(stream):
            async for item in stream:
                await arrivals.put((index, item))
    except Exception as error:
        await arrivals.put(error)
    else:
        await arrivals.put(None)
