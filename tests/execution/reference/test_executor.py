"""The reference executor as a whole, on tiny models: the shape of a step never changes what comes out."""

from pathlib import Path

import numpy as np
import pytest

from octavo.execution.protocols import Float32
from octavo.execution.quant import TensorType
from octavo.execution.reference import Arithmetic, ReferenceExecutor
from octavo.execution.weights import load_model
from octavo.kv.spec import KVDtype
from octavo.scheduling.plan import BlockCopy
from tests.execution.driver import Driver, layout_for
from tests.execution.test_weights import FAMILIES, open_tiny

TOKENS = 70
NEAR = {"rtol": 1e-4, "atol": 1e-4}
"""BLAS sums in another order for another number of rows."""


def executor(
    folder: Path, arithmetic: Arithmetic = Arithmetic.FLOAT32, dtype: KVDtype = KVDtype.FP32, **choices: object
) -> ReferenceExecutor:
    program, weights = load_model(open_tiny(folder, **choices))
    layout = layout_for(program, tokens=TOKENS, sequences=3, dtype=dtype)
    return ReferenceExecutor(program, weights, layout, arithmetic=arithmetic, max_rows=TOKENS)


def tokens(seed: int, count: int = TOKENS) -> list[int]:
    return np.random.default_rng(seed).integers(0, 512, count).tolist()


def all_logits(driver: Driver, token_ids: list[int], chunk: int) -> Float32:
    return np.concatenate([logits.copy() for _, logits in driver.score(token_ids, 0, chunk=chunk)])


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_and_company_change_nothing(family: str, tmp_path: Path) -> None:
    driver = Driver(executor(tmp_path, architecture=family))
    whole = all_logits(driver, tokens(0), TOKENS)
    np.testing.assert_allclose(all_logits(driver, tokens(0), 13), whole, **NEAR)
    a, b = driver.start(tokens(0)), driver.start(tokens(1))
    driver.step([(b, 30)])
    rows = [driver.step([(a, 20), (b, 5)])[0], driver.step([(b, 1), (a, 1)])[1], driver.step([(a, 49), (b, 2)])[0]]
    np.testing.assert_allclose(rows, whole[[19, 20, 69]], **NEAR)


def test_a_window_forgets_and_full_layers_do_not(tmp_path: Path) -> None:
    """With every layer sliding, two layers of window 8 cannot see further back than 14 tokens."""
    changed = tokens(0)
    changed[40] = (changed[40] + 1) % 512
    for period, sees_far in ((3, False), (2, True)):
        driver = Driver(executor(tmp_path, architecture="gemma3", window=8, window_period=period))
        difference = np.abs(all_logits(driver, tokens(0), 32) - all_logits(driver, changed, 32)).max(axis=1)
        assert (difference[:40] == 0).all()
        assert (difference[40:55] > 0).all()
        assert (difference[55:] > 0).all() == sees_far
        assert (difference[55:] == 0).all() != sees_far


def test_copied_blocks_continue_like_their_source(tmp_path: Path) -> None:
    driver = Driver(executor(tmp_path))
    a, b = driver.start(tokens(0)), driver.start(tokens(0))
    driver.step([(a, 30)])
    b.computed = 29
    batch = driver.batch([(b, 1)])  # takes b's blocks
    copies = [
        BlockCopy(group=0, source=source, target=target, num_tokens=count)
        for source, target, count in zip(a.blocks[0], b.blocks[0], (16, 13), strict=True)
    ]
    batch.block_copies = copies
    got = driver.executor.run(batch).copy()
    np.testing.assert_allclose(got, all_logits(driver, tokens(0), TOKENS)[29:30], **NEAR)


def test_logits_of_further_rows(tmp_path: Path) -> None:
    driver = Driver(executor(tmp_path))
    whole = all_logits(driver, tokens(0), TOKENS)
    driver.step([(driver.start(tokens(0)), TOKENS)])
    rows = np.array([3, 4, 60], np.int32)
    np.testing.assert_allclose(driver.executor.logits(rows), whole[rows], **NEAR)
    assert driver.executor.logits(rows[:0]).shape == (0, 512)


def test_more_rows_than_fit_are_refused(tmp_path: Path) -> None:
    program, weights = load_model(open_tiny(tmp_path))
    driver = Driver(ReferenceExecutor(program, weights, layout_for(program, tokens=8), max_rows=2))
    driver.step([(driver.start([1, 2, 3]), 3)])
    with pytest.raises(ValueError, match="3 logit rows in one call, at most 2"):
        driver.executor.logits(np.arange(3, dtype=np.int32))


def test_a_closed_executor_says_so(tmp_path: Path) -> None:
    driver = Driver(executor(tmp_path))
    live = driver.start([1, 2])
    with pytest.raises(ValueError, match="no batch was run"):
        driver.executor.logits(np.zeros(1, np.int32))
    driver.executor.close()
    driver.executor.close()
    with pytest.raises(ValueError, match="closed"):
        driver.step([(live, 2)])


@pytest.mark.parametrize(
    ("dtype", "share"), [(KVDtype.FP16, 0.01), (KVDtype.BF16, 0.02), (KVDtype.INT8, 0.05), (KVDtype.FP8, 0.25)]
)
def test_a_shorter_kv_format_changes_little_and_something(dtype: KVDtype, share: float, tmp_path: Path) -> None:
    exact = all_logits(Driver(executor(tmp_path)), tokens(0), TOKENS)
    short = all_logits(Driver(executor(tmp_path, dtype=dtype)), tokens(0), TOKENS)
    difference = np.abs(short - exact).max()
    assert 0 < difference < share * np.abs(exact).max()


def test_quantised_arithmetic_rounds_inputs_of_integer_weights_only(tmp_path: Path) -> None:
    for tensor_type, differs in ((TensorType.Q8_0, True), (TensorType.F16, False)):
        exact, rounded = (
            all_logits(Driver(executor(tmp_path, arithmetic, tensor_type=tensor_type)), tokens(0), TOKENS)
            for arithmetic in Arithmetic
        )
        difference = np.abs(exact - rounded).max()
        assert (difference > 0) == differs
        assert difference < 0.1 * np.abs(exact).max()
