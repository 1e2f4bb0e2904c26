"""Prices by row against the price of whole steps: parts of all requests add up to what the step costs."""

import random

import pytest

from octavo.model.cost import StepShape, cost, program_cost
from octavo.model.dataflow import weights_of
from octavo.model.program import Embed, Linear, Logits, Program
from octavo.model.rates import RowRates, row_rates
from octavo.visible_pairs import visible_pairs
from tests.model.test_cost import program as program_of

FAMILIES = ("llama", "qwen2", "gemma3", "granite", "olmo2")


def weight_sizes(program: Program) -> dict[str, int]:
    """Bytes that differ from weight to weight; rows of the embedding table are whole bytes."""
    return {
        name: (2 + i % 3) * weight.shape[0] * max(weight.shape[1:], default=1)
        for i, (name, weight) in enumerate(program.weights.items())
    }


def rates_of(program: Program) -> tuple[RowRates, list[int | None]]:
    reaches = list(dict.fromkeys(layer.window for layer in program.cache_layers))
    layer_bytes = [2 * layer.kv_heads * layer.head_dim * 2 for layer in program.cache_layers]
    linears = [op for op in program.ops if isinstance(op, Linear | Logits)]
    int8 = frozenset(op.weight for op in linears[::2])
    return row_rates(program, weight_sizes(program), layer_bytes, reaches, int8), reaches


@pytest.mark.parametrize("name", FAMILIES)
def test_parts_add_up_to_the_step(name: str) -> None:
    program = program_of(name)
    rates, reaches = rates_of(program)
    rng = random.Random(len(name))
    for _ in range(5):
        scheduled = [rng.choice([1, 1, 3, 40]) for _ in range(rng.randint(1, 5))]
        contexts = [count + rng.choice([0, 5, 700]) for count in scheduled]
        num_sampled = rng.randint(0, sum(scheduled))
        step = StepShape(tuple(scheduled), tuple(contexts), num_sampled)
        flops = rates.per_row.total * step.tokens + rates.per_sampled.total * num_sampled
        kv_bytes = rates.kv_write_bytes * step.tokens
        for reach, pair_flops, read_bytes in zip(reaches, rates.pair_flops, rates.kv_read_bytes, strict=True):
            for count, context in zip(scheduled, contexts, strict=True):
                flops += visible_pairs(count, context, reach) * pair_flops
                kv_bytes += read_bytes * (context if reach is None else min(context, count - 1 + reach))
        sizes = weight_sizes(program)
        whole = program_cost(program, step, sizes, kv_value_bytes=2)
        between_ops = program_cost(program, step, dict.fromkeys(sizes, 0), kv_value_bytes=0)
        assert flops == whole.flops
        moved = rates.weight_bytes + rates.embed_bytes * step.tokens + kv_bytes
        tied = _read_by_several(program, step, sizes)
        assert moved + tied == pytest.approx(whole.bytes - between_ops.bytes, abs=1)


def _read_by_several(program: Program, step: StepShape, sizes: dict[str, int]) -> int:
    """`program_cost` counts a weight for each op that reads it; a step reads it from memory once."""
    seen: set[str] = set()
    again = 0
    for op in program.ops:
        if isinstance(op, Embed):
            continue
        again += sum(sizes[weight] for weight in weights_of(op) if weight in seen)
        seen.update(weights_of(op))
    return again


@pytest.mark.parametrize("name", FAMILIES)
def test_operations_are_told_apart_by_their_numbers(name: str) -> None:
    program = program_of(name)
    rates, _ = rates_of(program)
    step = StepShape((1,), (1,), 1)
    linears = [op for op in program.ops if isinstance(op, Linear | Logits)]
    int8 = {op.weight for op in linears[::2]}
    expected = sum(cost(op, program, step, weight_sizes(program)).flops for op in linears if op.weight in int8)
    assert rates.per_row.int8 + rates.per_sampled.int8 == expected
