"""Two clients of one core process: what each asks for is its own, and the core lives and dies with the first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from octavo import AsyncLLM, SamplingParams
from octavo.config import EngineConfig
from octavo.engine.core_process import CoreProcess
from octavo.errors import EngineDeadError
from octavo.hub import resolve
from tests.engine.test_async_llm import LONG, SETTINGS, collect, run

SEEDED = SamplingParams(temperature=0.9, seed=3, max_tokens=40, ignore_eos=True)


@asynccontextmanager
async def two_clients(model: str, **settings: object) -> AsyncIterator[tuple[AsyncLLM, AsyncLLM, CoreProcess]]:
    config = EngineConfig.from_fields({"model": model, **SETTINGS, **settings})
    files = resolve(model)
    with CoreProcess() as process:
        process.load(config, files, num_clients=2)
        joining = AsyncLLM.join(process.join_order(config, files, client=1))
        owner, guest = await asyncio.gather(AsyncLLM.attach(process, config, files), joining)
        process.note_connection()
        try:
            yield owner, guest, process
        finally:
            await guest.shutdown()
            await owner.shutdown()


def test_both_get_their_own_tokens_and_the_same_ones(tiny_model: str) -> None:
    async def body() -> None:
        async with two_clients(tiny_model) as (owner, guest, process):
            assert not process.folder.exists()
            answers = await asyncio.gather(
                *(collect(one.generate(f"hello {i}", SEEDED)) for i in range(4) for one in (owner, guest))
            )
            assert answers[::2] == answers[1::2]
            assert len(set(answers)) == 4

    run(body)


def test_what_a_client_that_is_gone_has_asked_for_is_aborted(tiny_model: str) -> None:
    async def body() -> None:
        async with two_clients(tiny_model) as (owner, guest, _):
            streams = [guest.generate(f"hello {i}", LONG) for i in range(3)]
            kept = owner.generate("hello", LONG)
            for stream in [*streams, kept]:
                await anext(stream)
            await owner.forget_client(1)
            assert (await owner.load()).num_running <= 1
            await collect(kept)
            load = await owner.load()
            assert (load.num_running, load.num_free_blocks) == (0, load.num_blocks)
            guest.lose("the test says so")
            for stream in streams:
                with pytest.raises(EngineDeadError, match="the test says so"):
                    await collect(stream)

    run(body)


def test_a_guest_that_leaves_ends_nothing_but_itself(tiny_model: str) -> None:
    async def body() -> None:
        async with two_clients(tiny_model) as (owner, guest, _):
            await guest.shutdown()
            assert not guest.alive
            assert len((await collect(owner.generate("hello", LONG)))[0]) == 100

    run(body)


def test_sessions_are_those_of_a_tenant_whoever_asks(tiny_model: str) -> None:
    async def body() -> None:
        async with two_clients(tiny_model) as (owner, guest, _):
            await guest.pin("hello " * 20, "talk", tenant="me")
            assert [one.session_id for one in await owner.sessions(tenant="me")] == ["talk"]
            assert await owner.sessions(tenant="you") == []
            assert await owner.end_session("talk", tenant="me")
            assert await guest.sessions(tenant="me") == []

    run(body)


def test_why_a_core_cannot_start_is_told_to_both(tiny_model: str) -> None:
    async def body() -> None:
        config = EngineConfig.from_fields({"model": tiny_model, **SETTINGS, "max_model_len": 10**6})
        files = resolve(tiny_model)
        with CoreProcess() as process:
            process.load(config, files, num_clients=2)
            joining = AsyncLLM.join(process.join_order(config, files, client=1))
            failures = await asyncio.gather(AsyncLLM.attach(process, config, files), joining, return_exceptions=True)
            assert [str(failure) for failure in failures] == [str(failures[0])] * 2
            assert "2048 positions" in str(failures[0])

    run(body)
