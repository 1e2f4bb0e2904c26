"""What tenants share of the prefix cache, in a real engine."""

import asyncio

import pytest

from octavo import AsyncLLM, SamplingParams
from octavo.config import EngineConfig
from octavo.request.pin import PinRequest

ONE = SamplingParams(temperature=0, max_tokens=1)


@pytest.mark.parametrize("isolated", [False, True])
def test_prefixes_of_other_tenants(tiny_model: str, isolated: bool) -> None:
    async def cached(llm: AsyncLLM, tenant: str, session: PinRequest | None = None) -> int:
        deltas = [delta async for delta in llm.generate(PROMPT, ONE, tenant=tenant, session=session)]
        return deltas[-1].num_cached_tokens

    async def test() -> None:
        fields = {
            "model": tiny_model,
            "num_kv_blocks": 80,
            "max_model_len": 256,
            "threads": 1,
            "isolate_tenants": isolated,
        }
        llm = await AsyncLLM.start(EngineConfig.from_fields(fields))
        try:
            assert await cached(llm, "alice", PinRequest(session_id="s")) == 0
            assert await cached(llm, "alice") == 96
            assert await cached(llm, "bob") == (0 if isolated else 96)
            await llm.pin(PROMPT, PinRequest(session_id="s"), tenant="carol")
            assert (await llm.session("s", tenant="carol")).num_pinned_tokens == 96
            assert await cached(llm, "carol") == 96
        finally:
            await llm.shutdown()

    asyncio.run(asyncio.wait_for(test(), 60))


PROMPT = list(range(5, 105))
