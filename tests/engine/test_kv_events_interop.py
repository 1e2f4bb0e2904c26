"""Dynamo's router core follows our publisher: real blocks over loopback, credited to the right engine. Needs the
`interop` extra."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from octavo.kv.spec import AttentionSpec
from tests.engine.following import LIMIT_S, PublishingEngine
from tests.scheduling.harness import FULL, WINDOWED, make_request

dynamo = pytest.importorskip("dynamo._core", reason="ai-dynamo-runtime is not installed (extra `interop`)")

PROMPT = list(range(20))
"""Five blocks of four tokens."""


class Router:
    """Dynamo's `SelectionService` in this process."""

    def __init__(self) -> None:
        self._service = dynamo.SelectionService(indexer_threads=1)

    async def follow(self, worker_id: int, engine: PublishingEngine) -> None:
        worker = {
            "worker_id": worker_id,
            "model_name": "m",
            "endpoint": f"http://engine-{worker_id}",
            "block_size": engine.manager.layout.block_size,
            "data_parallel_start_rank": 0,
            "data_parallel_size": 1,
            "kv_events_endpoints": {0: engine.info.endpoint},
            "replay_endpoint": engine.info.replay_endpoint,
            "max_num_batched_tokens": 2048,
            "total_kv_blocks": engine.manager.num_blocks,
        }
        await self._service.upsert_worker(worker)

    async def expect(self, blocks: int, worker_id: int = 1, **prompt: Any) -> None:
        """Waits until the router believes that an engine has so many leading blocks of a prompt on its device."""
        request = {"model_name": "m", "token_ids": PROMPT, **prompt}
        found, end = None, time.monotonic() + LIMIT_S
        while found != blocks:
            assert time.monotonic() < end, f"the router believes in {found} blocks, not {blocks}"
            await asyncio.sleep(0.02)
            scores = await self._service.overlap_scores(request)
            found = next(w["device_blocks"] for w in scores["workers"] if w["worker_id"] == worker_id)

    async def choice(self) -> int:
        """The engine that it would send the prompt to."""
        chosen = await self._service.select({"model_name": "m", "token_ids": PROMPT})
        return int(chosen["worker_id"])

    async def close(self) -> None:
        await self._service.shutdown_async()


def with_router(test: Callable[[Router], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        router = Router()
        try:
            await test(router)
        finally:
            await router.close()

    asyncio.run(whole())


def generate(engine: PublishingEngine, request_id: str, prompt: list[int], **more: Any) -> None:
    engine.core.add(make_request(request_id, prompt, max_tokens=1, **more))
    engine.run()


@pytest.mark.parametrize("form", ["map", "array"])
@pytest.mark.parametrize("layers", [(FULL,), (WINDOWED, FULL)], ids=["full", "window"])
def test_it_learns_what_is_stored_evicted_and_cleared(form: str, layers: tuple[AttentionSpec, ...]) -> None:
    """It joins late, so it shows that it can use our replay, too. Layers with a window it leaves out of account."""
    engine = PublishingEngine(form=form, layers=layers, num_blocks=24 * len(layers))
    rng = random.Random(3)

    async def test(router: Router) -> None:
        generate(engine, "before", PROMPT)
        await router.follow(1, engine)
        await router.expect(5)
        for i in range(40):
            generate(engine, f"other {i}", [rng.randrange(100) for _ in range(20)])
        await router.expect(0)
        generate(engine, "again", PROMPT[:12])
        await router.expect(3)
        assert engine.core.reset_prefix_cache()
        await router.expect(0)

    with_router(test)
    assert engine.core.load().counters["evicted_blocks"] > 0
    engine.core.close()


def test_it_sends_prompts_where_their_blocks_are() -> None:
    engines = {1: PublishingEngine(), 2: PublishingEngine()}

    async def test(router: Router) -> None:
        for worker_id, engine in engines.items():
            await router.follow(worker_id, engine)
        generate(engines[2], "a", PROMPT)
        await router.expect(5, worker_id=2)
        assert await router.choice() == 2
        assert engines[2].core.reset_prefix_cache()
        generate(engines[1], "b", PROMPT)
        await router.expect(5, worker_id=1)
        await router.expect(0, worker_id=2)
        assert await router.choice() == 1

    with_router(test)
    for engine in engines.values():
        engine.core.close()


def test_salted_prompts_are_kept_apart() -> None:
    engine = PublishingEngine()

    async def test(router: Router) -> None:
        await router.follow(1, engine)
        generate(engine, "salted", PROMPT, cache_salt="s")
        generate(engine, "plain", PROMPT[:8])
        await router.expect(2)
        await router.expect(5, cache_salt="s")

    with_router(test)
    engine.core.close()


def test_a_restarted_engine_is_taken_for_another_one() -> None:
    """Its numbers go on, so it is not taken for the past, and its first batch clears what the one before had."""
    first = PublishingEngine()

    async def test(router: Router) -> None:
        await router.follow(1, first)
        generate(first, "a", PROMPT)
        await router.expect(5)
        first.core.close()
        second = PublishingEngine(endpoint=first.info.endpoint, replay_endpoint=first.info.replay_endpoint)
        generate(second, "b", PROMPT[:8])
        await router.expect(2)
        second.core.close()

    with_router(test)
