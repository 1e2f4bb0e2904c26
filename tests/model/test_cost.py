"""The price of a step against counts made another way."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.model.cost import (
    Cost,
    StepShape,
    cost,
    kv_values_per_token,
    num_parameters,
    program_cost,
)
from octavo.model.dataflow import reads, row_ops, weights_of, writes
from octavo.model.program import Attention, CacheWrite, Embed, Linear, Logits, Op, Program, Rope
from octavo.model.registry import define_model
from octavo.visible_pairs import visible_pairs
from tests.model.headers import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, VOCAB, WINDOW, gguf

FLOAT = 4


def program(family: str = "llama") -> Program:
    return define_model(gguf(family)).program


def float_bytes(p: Program) -> dict[str, int]:
    sizes = dict.fromkeys(p.weights, FLOAT)
    for name, weight in p.weights.items():
        for size in weight.shape:
            sizes[name] *= size
    return sizes


def of_type(p: Program, kind: type) -> list[Op]:
    return [op for op in p.ops if type(op) is kind]


@given(scheduled=st.integers(1, 40), before=st.integers(0, 60), window=st.none() | st.integers(1, 50))
def test_visible_pairs_counts_what_each_position_sees(scheduled: int, before: int, window: int | None) -> None:
    context = before + scheduled
    seen = [min(p + 1, window or context) for p in range(before, context)]
    assert visible_pairs(scheduled, context, window) == sum(seen)


def test_a_linear_reads_its_weight_once_however_many_tokens_run() -> None:
    p = program()
    op = next(op for op in p.ops if isinstance(op, Linear))
    weights = {op.weight: 1000}
    for tokens in (1, 7, 512):
        step = StepShape((tokens,), (tokens,), 1)
        expected = Cost(2 * tokens * HIDDEN * HEADS * HEAD_DIM, 1000 + FLOAT * tokens * (HIDDEN + HEADS * HEAD_DIM))
        assert cost(op, p, step, weights) == expected


def test_a_bias_adds_one_operation_per_output() -> None:
    p = program("qwen2")
    op = next(op for op in p.ops if isinstance(op, Linear))
    without = replace(op, bias=None)
    step = StepShape((3,), (3,), 1)
    sizes = float_bytes(p)
    more = cost(op, p, step, sizes), cost(without, p, step, sizes)
    assert more[0].flops - more[1].flops == 3 * HEADS * HEAD_DIM
    assert more[0].bytes - more[1].bytes == FLOAT * HEADS * HEAD_DIM


def test_embedding_reads_rows_and_logits_read_the_table() -> None:
    p = program()
    step = StepShape((5,), (5,), 2)
    weights = {"embed": VOCAB * 10}
    (embed,), (logits,) = of_type(p, Embed), of_type(p, Logits)
    assert cost(embed, p, step, weights).bytes == 5 * 10 + 5 * HIDDEN * FLOAT
    assert cost(logits, p, step, weights) == Cost(2 * 2 * HIDDEN * VOCAB, VOCAB * 10 + 2 * (HIDDEN + VOCAB) * FLOAT)


def test_attention_reads_kv_by_context_and_window() -> None:
    p = program("gemma3")
    sliding, full = of_type(p, Attention)[4:6]
    per_token = 2 * KV_HEADS * HEAD_DIM * 2
    step = StepShape((1, 10), (100, 40), 1)
    buffers = 2 * 11 * HEADS * HEAD_DIM * FLOAT
    assert cost(full, p, step, {}).bytes == (100 + 40) * per_token + buffers
    assert cost(sliding, p, step, {}).bytes == (WINDOW + 40) * per_token + buffers
    assert cost(sliding, p, step, {}, kv_value_bytes=4).bytes == 2 * (WINDOW + 40) * per_token + buffers
    pairs = 100 + sum(range(31, 41))
    assert cost(full, p, step, {}).flops == pairs * HEADS * (4 * HEAD_DIM + 5)


def test_cache_writes_cost_the_tokens_own_kv() -> None:
    p = program()
    op = of_type(p, CacheWrite)[0]
    expected = 6 * 2 * KV_HEADS * HEAD_DIM * (2 + FLOAT)
    assert cost(op, p, StepShape((6,), (50,), 0), {}) == Cost(0, expected)


def test_the_programs_cost_is_the_sum_of_its_ops_and_mostly_two_flops_per_parameter() -> None:
    p = program()
    step = StepShape((64,), (64,), 64)
    sizes = float_bytes(p)
    total = program_cost(p, step, sizes)
    costs = [cost(op, p, step, sizes) for op in p.ops]
    assert total == Cost(sum(c.flops for c in costs), sum(c.bytes for c in costs))
    matrices = sum(size // FLOAT for name, size in sizes.items() if len(p.weights[name].shape) == 2)
    products = sum(c.flops for op, c in zip(p.ops, costs, strict=True) if isinstance(op, Linear | Logits))
    assert products == 2 * 64 * matrices


def test_chunking_costs_more_weight_reads_and_the_same_products() -> None:
    p = program()
    sizes = float_bytes(p)
    whole = program_cost(p, StepShape((32,), (32,), 1), sizes)
    parts = program_cost(p, StepShape((16,), (16,), 0), sizes) + program_cost(p, StepShape((16,), (32,), 1), sizes)
    assert parts.flops == whole.flops
    assert parts.bytes > whole.bytes + sum(sizes.values()) - 2 * sizes["embed"]


def test_impossible_steps_are_refused() -> None:
    for scheduled, contexts in (((2,), (1,)), ((0,), (1,)), ((1, 1), (1,))):
        with pytest.raises(ValueError, match="scheduled"):
            StepShape(scheduled, contexts, 0)


def test_parameters_and_kv_are_counted_over_layers() -> None:
    p = program()
    layer = 2 * HIDDEN + 2 * HIDDEN * HEADS * HEAD_DIM + 2 * HIDDEN * KV_HEADS * HEAD_DIM + 3 * HIDDEN * 96
    assert num_parameters(p) == VOCAB * HIDDEN + LAYERS * layer + HIDDEN
    assert kv_values_per_token(p) == LAYERS * 2 * KV_HEADS * HEAD_DIM


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "gemma3", "phi3", "granite", "olmo2"])
def test_dataflow_sees_every_buffer_and_weight(family: str) -> None:
    p = program(family)
    assert {writes(op) for op in p.ops} - {None} == set(p.buffers)
    assert {name for op in p.ops for name in weights_of(op)} == set(p.weights)
    written: set[str | None] = set()
    for op in p.ops:
        assert set(reads(op)) <= written, op
        written.add(writes(op))
    assert all(writes(op) == op.x for op in p.ops if isinstance(op, Rope))
    scaled = ["Scale"] if family == "granite" else []
    assert [type(op).__name__ for op in row_ops(p)] == ["SelectRows", "RmsNorm", "Logits", *scaled]
