"""Logits processors that other packages bring: through their entry points, on every path, and when they fail."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM
from octavo._native import ThreadPool
from octavo.decoding.sampler import NativeSampler
from octavo.engine.async_llm import AsyncLLM
from octavo.engine.logits_processors import load_processors
from octavo.errors import ConfigError, InvalidRequestError
from octavo.request.outputs import FinishReason
from octavo.request.params import SamplingParams
from tests.sampling.conftest import COMMON, Install
from tests.sampling.oracle import Array, Edit
from tests.sampling.parameters import ALONE, params_of
from tests.sampling.plug_ins import MORE
from tests.sampling.test_every_path import PATHS, prompts
from tests.sampling.witness import witnessed

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "decoding.md").read_text()
EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
"""The processor that the page shows: what stands in the last `window` output tokens cannot come again."""


@pytest.fixture
def plug_ins(install: Install) -> None:
    install("noecho", EXAMPLE, no_echo="noecho:NoEcho")
    install("more_processors", MORE, push="more_processors:Push", faulty="more_processors:Faulty")


def no_echo(args: Any, prompt: Any, outputs: Any, row: Array) -> Array:
    edited = row.copy()
    edited[list(outputs)[-args["window"] :]] = -np.inf
    return edited


def push(args: Any, prompt: Any, outputs: Any, row: Array) -> Array:
    edited = row.copy()
    edited[args["token_id"]] += np.float32(args.get("by", 50.0))
    return edited


EDITS: dict[str, Edit] = {"no_echo": no_echo, "push": push}
ECHOING = {"temperature": 0.0, "logit_bias": {9: 30.0, 10: 28.0, 11: 27.0}, "logprobs": 2}
ASKED: dict[str, dict[str, Any]] = {
    "one": {**ECHOING, "logits_processors": {"no_echo": {"window": 2}}},
    "another": {**ECHOING, "logits_processors": {"no_echo": {"window": 7}}},
    "drawn": {"temperature": 1.0, "seed": 3, "top_k": 5, "logits_processors": {"no_echo": {"window": 100}}},
    "both, named the other way round": {
        **ECHOING,
        "logits_processors": {"push": {"token_id": 12}, "no_echo": {"window": 1}},
        "frequency_penalty": 0.5,
    },
    "three answers": {"temperature": 1.0, "seed": 5, "n": 3, "logits_processors": {"push": {"token_id": 9, "by": 3.5}}},
    "no arguments, none": {**ECHOING, "logits_processors": {}},
    **{name: ALONE[name] for name in ("greedy", "seed", "top_p", "thinking budget, open", "all together")},
}


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize("name", PATHS)
def test_on_every_path(tiny_model: str, name: str) -> None:
    path = PATHS[name]
    each = [params_of(fields) for fields in (*ASKED.values(), *ASKED.values())]
    llm, witness = witnessed(
        tiny_model,
        {**COMMON, **path.fields, "logits_processors": list(EDITS)},
        EDITS,
        fails_after_sampling=path.fails_after_sampling,
    )
    with llm:
        for _ in range(path.rounds):
            outputs = llm.generate(prompts(len(each)), each)
        assert "preemptions" not in path.counters or llm.load().counters["preemptions"] > 0
    assert witness.faults == []
    echoing = outputs[0].outputs[0].token_ids
    assert all(a != b for a, b in zip(echoing, echoing[2:], strict=False))
    assert set(outputs[3].outputs[0].token_ids[::2]) == {12}


@pytest.mark.usefixtures("plug_ins")
def test_requests_that_name_none_are_as_if_there_were_none(tiny_model: str) -> None:
    plain = [params_of(fields) for fields in ALONE.values()]
    edited = params_of({**ECHOING, "logits_processors": {"push": {"token_id": 12}}})
    with LLM(tiny_model, **COMMON, logits_processors=["push"]) as llm, LLM(tiny_model, **COMMON) as without:
        together = llm.generate(prompts(2 * len(plain)), [*plain, *[edited] * len(plain)])
        alone = without.generate(prompts(len(plain)), plain)
    assert [output.outputs for output in together[: len(plain)]] != []
    for a, b in zip(together, alone, strict=False):
        assert [(x.token_ids, x.logprobs) for x in a.outputs] == [(x.token_ids, x.logprobs) for x in b.outputs]


FAILURES = {
    "raise": "the logits processor 'faulty' failed (RuntimeError); the engine's log says more",
    "refuse": "the logits processor 'faulty' failed: mood='bad': must be good",
    "nan": "the logits processor 'faulty' made a logit NaN",
    "none": "no token is left to sample: logits_processors and the model's own -inf logits mask all of them",
}


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("how", FAILURES)
def test_a_processor_that_fails_ends_its_request_and_no_other(tiny_model: str, how: str, ahead: bool) -> None:
    fields = {**COMMON, "async_scheduling": ahead, "logits_processors": ["faulty"]}
    faulty = [params_of({**ECHOING, "logits_processors": {"faulty": {"at": at, "how": how}}}) for at in (0, 3, 99)]
    others = [params_of(ALONE[name]) for name in ("greedy", "seed", "all together")]
    each = [one for pair in zip(faulty, others, strict=True) for one in pair]
    with LLM(tiny_model, **fields) as llm:
        outputs = [output.outputs[0] for output in llm.generate(prompts(6), each)]
        alone = [llm.generate([prompts(6)[i]], each[i])[0].outputs[0] for i in (1, 3, 5)]
        load = llm.load()
    assert [answer.token_ids for answer in outputs[1::2]] == [answer.token_ids for answer in alone]
    first, third, never = outputs[::2]
    assert (len(first.token_ids), len(third.token_ids), len(never.token_ids)) == (0, 3, 20)
    assert never.finish_reason is FinishReason.LENGTH
    for answer in (first, third):
        assert (answer.finish_reason, answer.error) == (FinishReason.ERROR, FAILURES[how])
    assert load.num_free_blocks == load.num_blocks


@pytest.mark.usefixtures("plug_ins")
def test_a_row_of_the_models_own_nan_is_not_blamed_on_a_processor() -> None:
    sampler = NativeSampler(ThreadPool(1), 300, 300, "auto", load_processors(["push"], 300))
    sampler.add(0, params_of({**ECHOING, "logits_processors": {"push": {"token_id": 12}}}), [], [1], [])
    logits = np.zeros((1, 300), np.float32)
    logits[0, 7] = np.nan
    sampled = sampler.sample(logits, np.zeros(1, np.int32))
    assert sampled.errors == {0: "the model's logits hold a NaN, so no token can be sampled"}


@pytest.mark.usefixtures("plug_ins")
def test_processors_apply_in_the_order_of_the_start() -> None:
    """`no_echo` leaves nothing of a token for `push` to bring back, whatever order a request has them in."""
    logits = np.zeros((1, 300), np.float32)
    asked = {"push": {"token_id": 5}, "no_echo": {"window": 3}}
    sampler = NativeSampler(ThreadPool(1), 300, 300, "auto", load_processors(["no_echo", "push"], 300))
    for slot, names in enumerate((asked, dict(reversed(asked.items())))):
        sampler.add(slot, params_of({"temperature": 0.0, "logits_processors": names}), [], [1], [5])
        row = sampler.adjusted_logits(logits[0], slot)
        assert row[5] == -np.inf and np.count_nonzero(row) == 1


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize(
    ("asked", "field", "problem"),
    [
        ({"nobody": {}}, "logits_processors", "is no logits processor here; this engine has no_echo, push"),
        ({"no_echo": {}}, "logits_processors.no_echo", "takes one argument, window"),
        ({"no_echo": {"window": "x"}}, "logits_processors.no_echo", "takes one argument, window"),
        ({"push": {"token_id": 10**6}}, "logits_processors.push", "token_id must be below"),
        ({"push": {}}, "logits_processors.push", r"failed at these arguments \(KeyError\); the log says more"),
    ],
)
def test_arguments_are_checked_before_anything_runs(
    tiny_model: str, asked: dict[str, Any], field: str, problem: str
) -> None:
    with LLM(tiny_model, **COMMON, logits_processors=["no_echo", "push"]) as llm:
        with pytest.raises(InvalidRequestError, match=problem) as caught:
            llm.generate([[9, 10]], SamplingParams(logits_processors=asked))
        assert caught.value.field == field and llm.load().counters["steps"] == 0


def test_without_any_a_request_that_names_one_is_refused(tiny_model: str) -> None:
    with LLM(tiny_model, **COMMON) as llm, pytest.raises(InvalidRequestError, match="was started without any"):
        llm.generate([[9, 10]], SamplingParams(logits_processors={"no_echo": {"window": 2}}))


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ([1], "logits_processors"),
        ({"a": 5}, "logits_processors.a"),
        ({"a": {5: 5}}, "logits_processors.a"),
        ({5: {}}, "logits_processors"),
        ({"a": {"b": object()}}, "logits_processors"),
        ({"a": {"b": "x" * 70000}}, "logits_processors"),
    ],
)
def test_what_is_no_json_object_of_arguments_is_refused(asked: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(logits_processors=asked)
    assert caught.value.field == field


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["absent"], "known are .*no_echo.*entry points of 'octavo.logits_processors'"),
        (["push", "push"], "is named twice"),
        ([""], "must not hold an empty name"),
    ],
)
def test_names_are_checked_at_the_start(tiny_model: str, names: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        LLM(tiny_model, **COMMON, logits_processors=names)


def test_what_is_no_processor_is_refused_naming_its_package(tiny_model: str, install: Install) -> None:
    install("more_processors", MORE, seven="more_processors:not_one")
    with pytest.raises(ConfigError, match="more_processors:not_one of the package more_processors gave a int"):
        LLM(tiny_model, **COMMON, logits_processors=["seven"])


@pytest.mark.usefixtures("plug_ins")
def test_a_core_in_a_process_of_its_own_loads_them_too(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    fields = {**COMMON, "logits_processors": ["no_echo", "push"]}
    each = [params_of(fields) for fields in ASKED.values()]

    async def ask() -> list[tuple[int, ...]]:
        engine = await AsyncLLM.start(tiny_model, **fields)
        try:
            assert engine.info.logits_processors == ("no_echo", "push")
            return [await answer(engine, prompt, p) for prompt, p in zip(prompts(len(each)), each, strict=True)]
        finally:
            await engine.shutdown()

    async def answer(engine: AsyncLLM, prompt: list[int], p: SamplingParams) -> tuple[int, ...]:
        deltas = [delta.choice async for delta in engine.generate(prompt, p)]
        return tuple(i for choice in deltas if choice.index == 0 for i in choice.token_ids)

    with LLM(tiny_model, **fields) as llm:
        here = [output.outputs[0].token_ids for output in llm.generate(prompts(len(each)), each)]
    assert asyncio.run(ask()) == here


def test_arguments_cross_to_the_core_as_they_are() -> None:
    import msgspec

    params = SamplingParams(logits_processors={"a": {"list": [1, 2.5, "x", None, {"deep": True}], "n": 10**12}})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
    assert json.loads(json.dumps(params.logits_processors)) == params.logits_processors
