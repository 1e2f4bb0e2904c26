"""Same request, same tokens, same logprob bits: random models of every family, in every setting inside this process."""

import json
import re

import pytest

from octavo.request.outputs import FinishReason
from tests.effort import LONG, times
from tests.equality.baseline import INSTRUCTION_SETS, Baseline, need_isa
from tests.equality.conftest import TinyBaseline
from tests.equality.random_settings import random_settings
from tests.equality.settings import NOTHING_FORESEEN, Again, Crowd, Setting, SharedByThreads, Streamed, pool_of
from tests.equality.tiny_models import EVERY_FAMILY, FAMILIES, FORMATS, POISONABLE
from tests.equality.workload import Request, failing, poisoned, reverse, shuffled

AHEAD = {"async_scheduling": True}
ISAS: dict[str, Setting] = {isa: Crowd({"isa": isa}) for isa in INSTRUCTION_SETS}
SETTINGS: dict[str, Setting] = {
    "all at once, then shuffled with a cache made cold": Again(forget=True),
    "three at a time, last first": Crowd({"max_num_seqs": 3}, order=reverse),
    "budget 64": Crowd({"max_num_batched_tokens": 64}),
    "budget 2048": Crowd({"max_num_batched_tokens": 2048}),
    "chunks of 7": Crowd({"long_prefill_token_threshold": 7}),
    "no prefix cache": Crowd({"enable_prefix_caching": False}),
    "warm prefix cache": Again(at_least={"cached_tokens": 1000}),
    "warm prefix cache, parts of blocks": Again({"block_size": 64}, at_least={"copied_tokens": 400}),
    "warm prefix cache, whole blocks only": Again({"sub_block_match": False}, at_least={"cached_tokens": 1000}),
    "warm prefix cache, budget 16": Again({"max_num_batched_tokens": 16}, at_least={"cached_tokens": 1000}),
    "blocks of 1": Crowd({"block_size": 1}),
    "blocks of 8": Crowd({"block_size": 8}),
    "blocks of 32": Crowd({"block_size": 32}),
    "blocks of 256": Crowd({"block_size": 256}),
    "2 threads": Crowd({"threads": 2}),
    "3 threads": Crowd({"threads": 3}),
    "longest prefix first": Crowd({"scheduling_policy": "prefix", "max_num_seqs": 4}, order=shuffled),
    "nobody preempted": Crowd({"admission_conservativeness": 1.0, "max_num_seqs": 8}),
    "streams that take turns": Streamed(),
    "an LLM that callers share": SharedByThreads(),
    "planned a step ahead": Crowd(AHEAD, order=shuffled, at_least={"discarded_tokens": 1}),
    "planned a step ahead, budget 16": Crowd({**AHEAD, "max_num_batched_tokens": 16}),
    "planned a step ahead, warm prefix cache": Again({**AHEAD, "block_size": 4}, at_least={"cached_tokens": 1000}),
    "planned a step ahead, 2 threads, streams that take turns": Streamed({**AHEAD, "threads": 2}),
    "planned a step ahead, an LLM that callers share": SharedByThreads(AHEAD),
    "planned a step ahead, neighbours that fail": Crowd(
        AHEAD, neighbours=failing, order=shuffled, at_least={"finished_error": 25}
    ),
    "neighbours that fail": Crowd(neighbours=failing, order=shuffled, at_least={"finished_error": 25}),
    "neighbours that fail, budget 16": Crowd(
        {"max_num_batched_tokens": 16}, neighbours=failing, order=shuffled, at_least={"finished_error": 25}
    ),
    **ISAS,
}
MIXED: dict[str, Setting] = {
    "3 threads, budget 24, blocks of 8": Crowd({"threads": 3, "max_num_batched_tokens": 24, "block_size": 8}),
    **ISAS,
}

KV_SETTINGS: dict[str, Setting] = {
    "chunks of 7": Crowd({"long_prefill_token_threshold": 7}),
    "warm prefix cache, parts of blocks": Again({"block_size": 64}, at_least={"copied_tokens": 400}),
    "planned a step ahead, budget 16": Crowd(
        {**AHEAD, "max_num_batched_tokens": 16}, order=shuffled, at_least={"discarded_tokens": 1}
    ),
    "planned a step ahead, warm prefix cache, parts of blocks": Again(
        {**AHEAD, "block_size": 64, "threads": 2}, at_least={"copied_tokens": 400}
    ),
}
"""What moves K and V about: for each format of theirs."""
OTHER_PAIRS = [("gemma3", "fp32"), ("gemma3", "int8"), ("llama", "fp8")]
KV_DTYPES = [
    *[("llama", "bf16"), ("llama", "int8"), ("gemma3", "fp8")],
    *(pytest.param(*pair, marks=pytest.mark.long) for pair in OTHER_PAIRS),
]
"""Formats other than the one that all other tests have, with models to try them on."""

CODES: dict[str, Setting] = {
    "shuffled, 3 threads, budget 16": Crowd({"threads": 3, "max_num_batched_tokens": 16}, order=shuffled),
    "warm prefix cache, blocks of 4": Again({"block_size": 4}, at_least={"cached_tokens": 1000}),
    "blocks of 1": Crowd({"block_size": 1}),
    "blocks of 8": Crowd({"block_size": 8}),
    "blocks of 256": Crowd({"block_size": 256}),
    **ISAS,
}
"""For formats whose numbers share scales."""

SMALL_POOLS = {"llama": (136, 20), "qwen2": (136, 20), "gemma3": (98, 12)}
"""Tokens that fit, and preemptions that must come of it: gemma3's windowed layers hold little of a request."""
PREEMPTING: dict[str, dict[str, object]] = {
    "blocks of 16": {},
    "blocks of 4": {"block_size": 4},
    "no prefix cache": {"block_size": 4, "enable_prefix_caching": False},
    "budget 16": {"block_size": 4, "max_num_batched_tokens": 16},
    "planned a step ahead": {"block_size": 4, **AHEAD},
    "planned a step ahead, budget 16": {"block_size": 4, "max_num_batched_tokens": 16, **AHEAD},
    "cheapest victims": {"block_size": 4, "preemption_victim": "cheapest"},
    "longest prefix first": {"block_size": 4, "scheduling_policy": "prefix"},
    "chunks of 5, 3 threads": {"block_size": 4, "long_prefill_token_threshold": 5, "threads": 3},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_setting(tiny_baseline: TinyBaseline, family: str, setting: str) -> None:
    _check(tiny_baseline(family), SETTINGS, setting)


def formats_in_turn() -> list[tuple[str, str]]:
    """Every format in company, and by one instruction set: that all of them give the same, tests/native shows for each
    kernel; in long runs by all."""
    return [
        (model, setting)
        for i, model in enumerate(FORMATS)
        for setting in MIXED
        if LONG or setting not in ISAS or setting == INSTRUCTION_SETS[i % len(INSTRUCTION_SETS)]
    ]


@pytest.mark.parametrize(("model", "setting"), formats_in_turn())
def test_every_number_format_and_shape(tiny_baseline: TinyBaseline, model: str, setting: str) -> None:
    _check(tiny_baseline(model, "kernels"), MIXED, setting)


@pytest.mark.parametrize("setting", MIXED)
@pytest.mark.parametrize("kv_cache_dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_every_kv_dtype(tiny_baseline: TinyBaseline, family: str, kv_cache_dtype: str, setting: str) -> None:
    _check(tiny_baseline(family, "kernels", kv_cache_dtype), MIXED, setting)


@pytest.mark.parametrize("setting", CODES)
@pytest.mark.parametrize(("family", "kv_cache_dtype"), [("llama", "int8"), ("gemma3", "int8"), ("gemma3", "fp8")])
def test_kv_dtypes_with_scales(tiny_baseline: TinyBaseline, family: str, kv_cache_dtype: str, setting: str) -> None:
    _check(tiny_baseline(family, "all", kv_cache_dtype), CODES, setting)


@pytest.mark.parametrize("setting", KV_SETTINGS)
@pytest.mark.parametrize(("family", "kv_cache_dtype"), KV_DTYPES)
def test_what_moves_kv_about(tiny_baseline: TinyBaseline, family: str, kv_cache_dtype: str, setting: str) -> None:
    _check(tiny_baseline(family, "all", kv_cache_dtype), KV_SETTINGS, setting)


@pytest.mark.parametrize("setting", ["blocks of 4", "planned a step ahead, budget 16"])
@pytest.mark.parametrize(("family", "kv_cache_dtype"), KV_DTYPES)
def test_preemption_by_kv_dtype(tiny_baseline: TinyBaseline, family: str, kv_cache_dtype: str, setting: str) -> None:
    _check_preempting(tiny_baseline(family, "growing", kv_cache_dtype), family, PREEMPTING[setting])


@pytest.mark.parametrize("setting", PREEMPTING)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_a_pool_so_small_that_requests_push_each_other_out(
    tiny_baseline: TinyBaseline, family: str, setting: str
) -> None:
    _check_preempting(tiny_baseline(family, "growing"), family, PREEMPTING[setting])


@pytest.mark.parametrize(
    "fields",
    [{}, {"max_num_batched_tokens": 16}, {"num_kv_blocks": 64, "max_num_batched_tokens": 64}, AHEAD],
    ids=str,
)
@pytest.mark.parametrize("model", POISONABLE)
def test_neighbours_full_of_nan(tiny_baseline: TinyBaseline, model: str, fields: dict[str, object]) -> None:
    tiny_baseline(model).check(Crowd(fields, neighbours=poisoned, order=shuffled, at_least={"finished_error": 24}))


@pytest.mark.slow
@pytest.mark.parametrize("model", [*FAMILIES, *FORMATS])
def test_random_settings(tiny_baseline: TinyBaseline, model: str) -> None:
    for setting in random_settings(model, times(1)):
        tiny_baseline(model).check(setting)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kv_cache_dtype"), KV_DTYPES)
def test_random_settings_by_kv_dtype(tiny_baseline: TinyBaseline, family: str, kv_cache_dtype: str) -> None:
    for setting in random_settings(f"{family}, {kv_cache_dtype}", times(1)):
        tiny_baseline(family, "all", kv_cache_dtype).check(setting)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_the_workload_brings_about_what_it_is_for(tiny_baseline: TinyBaseline, family: str) -> None:
    answers = tiny_baseline(family).answers
    ends = {name: [choice.end[:2] for choice in answer.choices] for name, answer in answers.items()}
    stop = FinishReason.STOP
    for name in ("stop strings", "stop strings, shown"):
        ((reason, stop_string),) = ends[name]
        assert reason is stop
        assert isinstance(stop_string, str)
    assert ends["min_tokens"] == [(stop, 77)]
    assert len(answers["min_tokens"].choices[0].token_ids) == 10
    assert ends["end of text"] == [(stop, None)]
    assert len({tuple(choice.token_ids) for choice in answers["three answers"].choices}) == 3
    assert answers["whole blocks in"].choices[0].token_ids != answers["the same, other seed"].choices[0].token_ids
    free = [answers[request.name] for request in tiny_baseline(family).workload if not has_shape(request)]
    assert all(len(set(c.token_ids)) > len(c.token_ids) // 3 for a in free for c in a.choices), "it repeats itself"


def has_shape(request: Request) -> bool:
    return request.params.structured_outputs is not None


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_answers_of_a_shape_are_whole(tiny_baseline: TinyBaseline, family: str) -> None:
    answers = tiny_baseline(family).answers
    for name in ("a JSON object", "a list, two answers", "an expression"):
        assert {choice.end[:2] for choice in answers[name].choices} == {(FinishReason.STOP, None)}
    texts = {name: choice.text for name, answer in answers.items() for choice in answer.choices}
    assert set(json.loads(texts["a JSON object"])) == {"name", "age"}
    assert len(json.loads(texts["a list, two answers"])) >= 3
    assert re.fullmatch(r"([A-Z][a-z]{3,5} ){2,3}[.!?]", texts["an expression"])
    grown = tiny_baseline(family, "growing").answers
    assert re.fullmatch("[a-z ]{20,90}", grown["growing in a shape"].choices[0].text)
    (reasoned,) = grown["growing behind reasoning"].choices
    behind = next(place for place, token in enumerate(reasoned.token_ids) if token in range(100, 200)) + 1
    assert behind < len(reasoned.token_ids)


def _check_preempting(baseline: Baseline, family: str, fields: dict[str, object]) -> None:
    num_tokens, least = SMALL_POOLS[family]
    pool = pool_of(baseline.model, num_tokens, baseline.fields["kv_cache_dtype"])
    small = {"max_model_len": 96, **pool, **NOTHING_FORESEEN, **fields}
    baseline.check(Crowd(small, at_least={"preemptions": least}))


def _check(baseline: Baseline, settings: dict[str, Setting], name: str) -> None:
    if name in ISAS:
        need_isa(name, baseline.isa)
    baseline.check(settings[name])
