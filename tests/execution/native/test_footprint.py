"""What is foretold of an executor's memory is what it then has."""

from pathlib import Path

import pytest

from octavo.execution.native import NativeExecutor
from octavo.execution.native.footprint import StepLimits, footprint
from octavo.execution.quant import TensorType
from octavo.execution.weights import load_model
from tests.execution.driver import layout_for
from tests.execution.test_weights import FAMILIES, open_tiny


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.Q8_0])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_an_executor_allocates(family: str, kind: TensorType, threads: int, tmp_path: Path) -> None:
    heads = {"kv_heads": 4} if family == "gpt2" else {}
    program, weights = load_model(open_tiny(tmp_path, architecture=family, tensor_type=kind, **heads))
    limits = StepLimits(threads=threads, max_tokens=300, max_rows=7, max_positions=48)
    executor = NativeExecutor(
        program, weights, layout_for(program, tokens=48), threads=threads, isa="auto", max_tokens=limits.max_tokens,
        max_rows=limits.max_rows, max_seqs=2, max_positions=limits.max_positions,
    )  # fmt: skip
    foretold, found = footprint(program, weights, limits), executor.num_bytes
    assert (foretold.weights, foretold.step) == (found["weights"], found["scratch"])
    executor.close()
