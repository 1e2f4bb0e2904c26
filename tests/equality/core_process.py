"""Running a workload through a core process, beside neighbours that leave in the middle."""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo import AsyncLLM, SamplingParams
from octavo.config import EngineConfig
from tests.equality.settings import Fields, assert_grown, assert_settled
from tests.equality.transcript import Answer, Transcripts
from tests.equality.workload import Request, Workload, seeded

LIMIT_S = 100


@dataclass(frozen=True)
class CoreProcess:
    """All requests at once, streamed from a core process."""

    fields: Fields = field(default_factory=dict)
    neighbours_per_request: int = 0
    """Requests with the same prompts that are given up after some tokens, or before the first one."""
    salts: int = 1
    """So many groups of requests that share nothing of the prefix cache."""
    priorities: int = 1
    """Priorities from 0 on, dealt out by chance."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Counters that must have grown by so much."""

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        return asyncio.run(asyncio.wait_for(self._run(model, {**fields, **self.fields}, workload), LIMIT_S))

    async def _run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        llm = await AsyncLLM.start(EngineConfig.from_fields({"model": model, **fields}))
        try:
            before = await llm.load()
            answers = await asyncio.gather(*self._everybody(llm, workload))
            after = await llm.load()
            assert_settled(after)
            assert_grown(before, after, self.at_least)
        finally:
            await llm.shutdown()
        kept = [answer for answer in answers if answer is not None]
        return {request.name: answer.transcript() for request, answer in zip(workload, kept, strict=True)}

    def _everybody(self, llm: AsyncLLM, workload: Workload) -> list[Coroutine[Any, Any, Answer | None]]:
        """The workload's requests in order, each behind its neighbours."""
        chance = random.Random(3)
        everybody: list[Coroutine[Any, Any, Answer | None]] = []
        for place, request in enumerate(workload):
            for i in range(self.neighbours_per_request):
                params = seeded(chance.randrange(1000), 30, logprobs=2, n=1 + i % 2)
                everybody.append(give_up(llm, request, params, after=chance.randrange(12), close=chance.random() < 0.5))
            salt, priority = str(place % self.salts), chance.randrange(self.priorities)
            everybody.append(answer_of(llm, request, salt, priority))
        return everybody


async def answer_of(llm: AsyncLLM, request: Request, salt: str, priority: int) -> Answer:
    """The whole answer to one request."""
    answer = Answer(request.params.n)
    prompt = prompt_of(llm, request)
    async for delta in llm.generate(prompt, request.params, cache_salt=salt, priority=priority):
        answer.add(delta)
    return answer


async def give_up(llm: AsyncLLM, request: Request, params: SamplingParams, *, after: int, close: bool) -> None:
    """Asks, and leaves after some deltas: by closing the iterator, or by aborting the request."""
    request_id = f"neighbour of {request.name}, seed {params.seed}, {after}"
    stream = llm.generate(prompt_of(llm, request), params, request_id=request_id)
    for _ in range(after):
        await anext(stream, None)
    if close:
        await stream.aclose()
        return
    await asyncio.gather(llm.abort(request_id), _drain(stream))


async def _drain(stream: Any) -> None:
    async for _ in stream:
        pass


def prompt_of(llm: AsyncLLM, request: Request) -> str | list[int]:
    """What `AsyncLLM.generate` takes."""
    if request.messages:
        return llm.render_chat(request.messages)
    return request.prompt if isinstance(request.prompt, str) else list(request.prompt)  # type: ignore[arg-type]
