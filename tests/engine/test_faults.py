"""Faults at the edges of the engine: requests that cannot be read, queued, tokenised or put into words."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from octavo import AsyncLLM, SamplingParams
from octavo.config import EngineConfig, SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.input import InputProcessor
from octavo.errors import InvalidRequestError
from octavo.execution.scripted import ScriptedExecutor
from octavo.kv.manager import KVManager
from octavo.request.outputs import FinishReason
from octavo.scheduling.policy import SchedulingPolicy
from octavo.scheduling.request_state import SchedulerRequest
from octavo.scheduling.scheduler import Scheduler
from octavo.text.gguf import read_gguf
from octavo.text.tokenizer import Tokenizer
from tests.engine.scripted import BYTE_VOCABULARY, scripted_llm
from tests.scheduling.harness import alone, make_layout, make_request


class Stumbling(Tokenizer):
    """Bytes as tokens, but one cannot be written and one cannot be read."""

    def text_bytes(self, token_id: int, *, skip_special: bool) -> bytes:
        if token_id == ord("#"):
            raise UnicodeError("no such letter")
        return super().text_bytes(token_id, skip_special=skip_special)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        if "%" in text:
            raise RuntimeError("the encoder has a bug")
        return super().encode(text, add_special=add_special, parse_special=parse_special)


@pytest.fixture
def stumbling() -> Tokenizer:
    return Stumbling(read_gguf(BYTE_VOCABULARY))


def echo(known: Sequence[int], num_prompt: int, params: SamplingParams) -> int:
    """Answers with the prompt."""
    return known[min(len(known) - num_prompt, num_prompt - 1)]


PARAMS = SamplingParams(temperature=0, max_tokens=6)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_request_without_a_text_ends_with_an_error_and_is_freed(stumbling: Tokenizer, ahead: bool) -> None:
    llm = scripted_llm(echo, async_scheduling=ahead)
    llm._words = replace(llm._words, tokenizer=stumbling)
    first, broken, third = llm.generate(["abcdef", "uvw#yz", "ghijkl"], PARAMS)
    assert [output.outputs[0].text for output in (first, third)] == ["abcdef", "ghijkl"]
    (choice,) = broken.outputs
    assert (choice.finish_reason, choice.text, len(choice.token_ids)) == (FinishReason.ERROR, "uvw", 3)
    assert choice.error == "no text can be made of the tokens (UnicodeError); the log says more"
    load = llm.load()
    assert (load.num_running, load.num_waiting, load.num_free_blocks) == (0, 0, load.num_blocks)


def test_whoever_steps_for_others_does_not_get_their_faults(stumbling: Tokenizer) -> None:
    """The stream that waits makes the step in which another one's text fails, and goes on."""
    llm = scripted_llm(echo)
    llm._words = replace(llm._words, tokenizer=stumbling)
    resting, stepping = llm.stream("a#b", PARAMS), llm.stream("uvwxyz", PARAMS)
    assert next(resting).choice.text == "a"
    assert "".join(delta.choice.text for delta in stepping) == "uvwxyz"
    last = list(resting)[-1].choice
    assert last.finish_reason is FinishReason.ERROR and last.error is not None


def test_one_of_several_choices_may_fail() -> None:
    def script(known: Sequence[int], num_prompt: int, params: SamplingParams) -> int:
        return ord("#") if params.seed == 7 else ord("x")

    llm = scripted_llm(script)
    llm._words = replace(llm._words, tokenizer=Stumbling(read_gguf(BYTE_VOCABULARY)))
    (output,) = llm.generate("a", SamplingParams(temperature=1, seed=7, n=3, max_tokens=4))
    assert [choice.finish_reason for choice in output.outputs] == [FinishReason.ERROR, *[FinishReason.LENGTH] * 2]
    assert [choice.text for choice in output.outputs] == ["", "xxxx", "xxxx"]


def test_a_prompt_that_cannot_be_tokenised_is_its_callers_business_alone(stumbling: Tokenizer) -> None:
    llm = scripted_llm(echo)
    llm._words = replace(llm._words, tokenizer=stumbling)
    llm._input = InputProcessor(llm.info, stumbling, None)
    running = llm.stream("abc", PARAMS)
    next(running)
    with pytest.raises(RuntimeError, match="the encoder has a bug"):
        llm.generate(["fine", "100 %"], PARAMS)
    assert llm.load().num_running == 1  # nothing of the broken call was begun
    assert "".join(delta.choice.text for delta in running) == "bcccc"


def core_with(policy: SchedulingPolicy) -> EngineCore:
    config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64)
    scheduler = Scheduler(config, KVManager(make_layout(64)), 128, policy)
    return EngineCore(scheduler, ScriptedExecutor(make_layout(64), vocab_size=1000), lambda: 0.0)


def test_a_policy_that_raises_at_a_request_refuses_that_one() -> None:
    def sort_key(request: SchedulerRequest) -> tuple[int, ...]:
        if request.request_id == "odd":
            raise ZeroDivisionError
        return (request.arrival_index,)

    core = core_with(SchedulingPolicy(name="touchy", sort_key=sort_key))
    first, odd, last = (make_request(name, 6) for name in ("first", "odd", "last"))
    assert core.add(first) is None
    refusal = core.add(odd)
    assert refusal is not None and refusal.finish_reason is FinishReason.ERROR and refusal.error_status == 500
    assert refusal.error == "the request cannot be queued (ZeroDivisionError); the engine's log says more"
    assert core.add(last) is None
    tokens: dict[str, list[int]] = {"first": [], "last": []}
    while core.has_work:
        for output in core.step():
            tokens[output.request_id] += output.new_token_ids
    assert tokens == {"first": alone(first), "last": alone(last)}
    assert core.load().num_free_blocks == core.load().num_blocks


UNREADABLE: dict[str, Callable[[AsyncLLM], Any]] = {
    "priority": lambda llm: llm.generate([5], PARAMS, priority="high"),  # type: ignore[arg-type]
    "cache_salt": lambda llm: llm.generate([5], PARAMS, cache_salt=5),  # type: ignore[arg-type]
    "ignore_eos": lambda llm: llm.generate([5], PARAMS.replace(ignore_eos="no")),
}


def test_a_field_of_another_type_costs_its_request_and_not_the_engine(tiny_model: str) -> None:
    async def main() -> None:
        fields = {"model": tiny_model, "max_model_len": 128, "num_kv_blocks": 40, "threads": 1}
        llm = await AsyncLLM.start(EngineConfig.from_fields(fields))
        try:
            for field, ask in UNREADABLE.items():
                with pytest.raises(InvalidRequestError, match=rf"^{field}=.*Expected `"):
                    await anext(ask(llm))
            assert [delta.choice.index async for delta in llm.generate([5], PARAMS)]
            assert llm.alive
        finally:
            await llm.shutdown()

    asyncio.run(asyncio.wait_for(main(), 60))
