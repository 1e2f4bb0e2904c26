"""Below a window a block table names the null block, and whatever stands there or in blocks of others is not read."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import Float32, ProgramExecutor
from octavo.execution.quant import TensorType
from octavo.execution.reference import ReferenceExecutor
from octavo.execution.weights import LoadedWeight, load_model
from octavo.kv.spec import KVDtype
from octavo.model.program import Embed, Program
from tests.execution.driver import Driver, Live, layout_for
from tests.execution.native.rig import ISAS, bits, float_weight
from tests.execution.poison import poison
from tests.execution.test_weights import open_tiny

TOKENS, WINDOW = 200, 24
POISON = 7
"""A token id that gives NaN as K and V."""
CHUNKS = {
    "one by one": [150, *[1] * 50],
    "in chunks": [50, 50, 50, 50],
    "in small chunks": [13] * 15 + [5],
    "both": [1, 100, 1, 1, 60, 3, 34],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, dict[str, LoadedWeight]]:
    folder = tmp_path_factory.mktemp("gemma3")
    checkpoint = open_tiny(
        folder, architecture="gemma3", tensor_type=TensorType.F32, window=WINDOW, window_period=3, layers=4
    )
    program, weights = load_model(checkpoint)
    (embedding,) = (op.weight for op in program.ops if isinstance(op, Embed))
    values = weights[embedding].float32().copy()
    values[POISON] = np.nan
    return program, {**weights, embedding: float_weight(values)}


def executors(
    model: tuple[Program, dict[str, LoadedWeight]], block_size: int, dtype: KVDtype = KVDtype.FP16
) -> Iterator[ProgramExecutor]:
    program, weights = model
    layout = layout_for(program, tokens=TOKENS, sequences=2, block_size=block_size, dtype=dtype)
    yield ReferenceExecutor(program, weights, layout)
    for isa in ISAS:
        yield NativeExecutor(
            program, weights, layout, threads=2, isa=isa, max_tokens=TOKENS, max_rows=4, max_seqs=4,
            max_positions=TOKENS,
        )  # fmt: skip


def let_go(driver: Driver, live: Live) -> list[int]:
    """Empties the entries of each table that no later token needs; returns their blocks."""
    layout, gone = driver.executor.layout, []
    for group, table in zip(layout.groups, live.blocks, strict=True):
        first = group.spec.first_needed(live.computed) // layout.block_size
        gone += [block for block in table[:first] if block]
        table[:first] = [0] * first
    return gone


def logits_of(driver: Driver, chunks: Sequence[int], *, spoil: bool) -> Float32:
    """Last logits of each chunk. If spoiled, blocks are let go of, and these, the null block and all unused ones are
    full of NaN at every step."""
    token_ids = np.random.default_rng(3).integers(8, 500, TOKENS).tolist()
    live, rows = driver.start(token_ids), []
    if spoil:
        poison(driver.executor, POISON, [0, *driver.free])
    for chunk in chunks:
        if spoil:
            gone = let_go(driver, live)
            poison(driver.executor, POISON, gone)
            driver.free = gone + driver.free
        rows.append(driver.step([(live, chunk)])[0])
    return np.delete(np.array(rows), POISON, axis=1)


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize(
    ("block_size", "dtype"),
    [(4, KVDtype.FP16), (16, KVDtype.FP16), (64, KVDtype.FP16), (4, KVDtype.FP8), (16, KVDtype.INT8)],
)
def test_nothing_out_of_reach_is_read(
    model: tuple[Program, dict[str, LoadedWeight]], block_size: int, dtype: KVDtype, chunks: list[int]
) -> None:
    for executor in executors(model, block_size, dtype):
        clean = logits_of(Driver(executor), chunks, spoil=False)
        assert np.isfinite(clean).all()
        np.testing.assert_array_equal(bits(logits_of(Driver(executor), chunks, spoil=True)), bits(clean))
        executor.close()


@pytest.mark.parametrize("dtype", [KVDtype.FP16, KVDtype.INT8, KVDtype.FP8])
def test_the_poison_works(model: tuple[Program, dict[str, LoadedWeight]], dtype: KVDtype) -> None:
    for executor in executors(model, 16, dtype):
        driver = Driver(executor)
        live = driver.start(range(8, 108))
        driver.step([(live, 99)])
        group = next(i for i, g in enumerate(executor.layout.groups) if g.spec.first_needed(99) > 0)
        poison(executor, POISON, [live.blocks[group][4]])  # positions 64 to 79 of 76 to 99, which the next token sees
        assert np.isnan(driver.step([(live, 1)])).any()
        executor.close()
