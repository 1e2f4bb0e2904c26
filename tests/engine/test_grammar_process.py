"""Answers of a given shape from a core process: compiled there, refused with a 400, left while compiling."""

import asyncio
import contextlib
import json
from typing import Any

import jsonschema
import pytest

from octavo import AsyncLLM, SamplingParams, StructuredKind, StructuredSpec
from octavo.errors import InvalidRequestError
from octavo.request.outputs import FinishReason

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"], "additionalProperties": False}
BIG = {"enum": [f"value {i * 7919} {'x' * 30}" for i in range(6_000)]}
PROMPT = list(range(30, 50))


def shaped(schema: Any, **more: Any) -> SamplingParams:
    spec = StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=json.dumps(schema), field="response_format")
    return SamplingParams(**{"max_tokens": 150, "seed": 3, "structured_outputs": spec, **more})


async def text_of(llm: AsyncLLM, params: SamplingParams) -> str:
    """The whole answer, which ends well."""
    parts = [delta.choice async for delta in llm.generate(PROMPT, params)]
    assert parts[-1].finish_reason is FinishReason.STOP
    return "".join(part.text for part in parts)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_core_process_enforces_shapes(tiny_model: str, ahead: bool) -> None:
    asyncio.run(_check(tiny_model, ahead))


async def _check(model: str, ahead: bool) -> None:
    llm = await AsyncLLM.start(model, max_model_len=256, num_kv_blocks=200, threads=1, async_scheduling=ahead)
    try:
        free = llm.generate(PROMPT, SamplingParams(max_tokens=200, ignore_eos=True, detokenize=False))
        await anext(free)
        texts = await asyncio.gather(*(text_of(llm, shaped(SCHEMA, seed=i, n=1 + i % 2)) for i in range(6)))
        for text in texts[::2]:
            jsonschema.validate(json.loads(text), SCHEMA)
        with pytest.raises(InvalidRequestError, match=r"response_format=.*\$\.items: the keyword 'not'"):
            await text_of(llm, shaped({"items": {"not": {}}}))
        await _leave_while_compiling(llm)
        async for delta in free:
            last = delta.choice
        assert last.finish_reason is FinishReason.LENGTH, "nobody else has noticed"
        load = await llm.load()
        assert (load.num_running, load.num_waiting, load.num_waiting_for_grammar) == (0, 0, 0)
        assert load.num_free_blocks == load.num_blocks
        assert json.loads(await text_of(llm, shaped(BIG))) in BIG["enum"]
    finally:
        await llm.shutdown()


async def _leave_while_compiling(llm: AsyncLLM) -> None:
    for i in range(8):
        stream = llm.generate(PROMPT, shaped(BIG, seed=i), request_id=f"leaves {i}")
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)  # it has been sent
        if i % 2:
            await llm.abort(f"leaves {i}")
            with contextlib.suppress(StopAsyncIteration):
                await first
        else:
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first
        await stream.aclose()
