"""What a step must take at least, against figures that can be worked out by hand."""

import pytest

from octavo.bench.bounds import Bound, Limit, Work, bound, step_work, work_of
from octavo.bench.single_ops import Sizes, attention_program, embed_program, linear_program, row_programs
from octavo.bench.steps import StepCase
from octavo.execution.quant import TensorType
from octavo.model.program import CacheLayer
from octavo.platform.peaks import Peaks

PEAKS = Peaks(threads=2, isa="portable", read_bytes_per_s=100.0, int8_ops_per_s=1000.0, float_ops_per_s=10.0)


def test_the_slower_of_memory_and_arithmetic_is_the_bound() -> None:
    assert bound(Work(int8_ops=1000, float_ops=10, memory_bytes=100), PEAKS) == Bound(2.0, Limit.ARITHMETIC)
    assert bound(Work(int8_ops=1000, float_ops=10, memory_bytes=300), PEAKS) == Bound(3.0, Limit.MEMORY)
    assert bound(Work(memory_bytes=300), PEAKS).share(4.0) == 0.75


@pytest.mark.parametrize(("kind", "ops"), [(TensorType.Q4_1, "int8_ops"), (TensorType.BF16, "float_ops")])
@pytest.mark.parametrize("rows", [1, 7])
def test_a_linear_fetches_its_weight_once_and_computes_in_the_weight_s_kind(
    kind: TensorType, ops: str, rows: int
) -> None:
    made = linear_program(kind, 64, 96, copies=3)
    assert len(made.measured) == 3
    work = work_of(made.measured[1], made.program, StepCase(rows, 1, 1).shape, made.weights)
    assert work == Work(**{ops: 2 * 64 * 96 * rows}, memory_bytes=kind.num_bytes((64, 96)))


def test_attention_fetches_what_each_sequence_sees() -> None:
    made = attention_program(6, CacheLayer(kv_heads=2, head_dim=16), layers=2)
    case = StepCase(sequences=3, tokens=1, context=40)
    work = work_of(made.measured[0], made.program, case.shape, made.weights)
    assert work == Work(float_ops=3 * 40 * 6 * (4 * 16 + 5), memory_bytes=3 * 40 * 2 * 2 * 16 * 2)


def test_a_window_bounds_what_is_fetched() -> None:
    made = attention_program(2, CacheLayer(kv_heads=1, head_dim=8, window=10), layers=1)
    work = work_of(made.measured[0], made.program, StepCase(1, 1, 1000).shape, made.weights)
    assert work.memory_bytes == 10 * 2 * 8 * 2


def test_an_embedding_fetches_its_rows_and_row_ops_no_weights_but_a_norm_s() -> None:
    table = embed_program(TensorType.Q8_0, 100, 64)
    shape = StepCase(5, 1, 1).shape
    assert work_of(table.measured[0], table.program, shape, table.weights).memory_bytes == 5 * 68
    programs = row_programs(Sizes(32, 2, 1, 16, 64, 10), copies=4)
    fetched = {
        name: work_of(made.measured[0], made.program, shape, made.weights).memory_bytes
        for name, made in programs.items()
    }
    assert fetched == {"norm": 32 * 4, "rope": 0, "activation": 0, "add": 0}


def test_a_step_is_the_sum_of_its_ops() -> None:
    made = attention_program(4, CacheLayer(kv_heads=2, head_dim=8), layers=3)
    shape = StepCase(2, 1, 9).shape
    parts = [work_of(op, made.program, shape, made.weights) for op in made.program.ops]
    whole = step_work(made.program, shape, made.weights)
    assert whole == sum(parts, Work())
    assert whole.float_ops > 0
