import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _native
from octavo.execution.quant import TensorType, dequantize, fit, quantize
from octavo.execution.quant.fit import _ENCODERS

FITTED = list(_ENCODERS)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def error_of(tensor_type: TensorType, raw: np.ndarray, x: np.ndarray) -> float:
    return float(np.sqrt(np.mean((dequantize(tensor_type, raw, x.shape) - x).astype(np.float64) ** 2)))


@pytest.mark.parametrize("tensor_type", FITTED, ids=lambda t: t.name)
def test_error_is_below_that_of_plain_rounding(tensor_type: TensorType) -> None:
    """On normal weights; the bounds are what was found, plus a hundredth."""
    bound = {"Q2_K": 0.2614, "Q3_K": 0.1457, "Q4_0": 0.0821, "Q4_1": 0.0698, "Q4_K": 0.0705, "IQ4_NL": 0.0741,
             "Q5_0": 0.0407, "Q5_1": 0.0343, "Q5_K": 0.0352, "Q6_K": 0.0167}[tensor_type.name]  # fmt: skip
    x = normal(2, 64, 512)
    found = error_of(tensor_type, fit(tensor_type, x), x)
    assert found < bound
    assert found < 0.96 * error_of(tensor_type, quantize(tensor_type, x), x)


@pytest.mark.parametrize("tensor_type", FITTED, ids=lambda t: t.name)
def test_error_is_that_of_the_public_search_or_less(tensor_type: TensorType) -> None:
    """RMSE of llama.cpp's `ggml_quantize_chunk` without an importance matrix, on the same weights."""
    theirs = {"Q4_0": 0.0851, "Q4_1": 0.0769, "Q5_0": 0.0423, "Q5_1": 0.0375, "IQ4_NL": 0.0752, "Q2_K": 0.2926,
              "Q3_K": 0.1492, "Q4_K": 0.06999, "Q5_K": 0.0358, "Q6_K": 0.0175}[tensor_type.name]  # fmt: skip
    x = normal(3, 64, 512)
    assert error_of(tensor_type, fit(tensor_type, x), x) < theirs


@pytest.mark.parametrize("tensor_type", FITTED, ids=lambda t: t.name)
def test_every_path_gives_the_same_bytes(tensor_type: TensorType) -> None:
    x = normal(4, 37, 256) * np.float32(0.02)
    x[1] = 0
    x[2, :32] = 1e-6
    expected = fit(tensor_type, x, isa="portable")
    for isa in _native.available_isas():
        np.testing.assert_array_equal(fit(tensor_type, x, isa=isa), expected, err_msg=isa)


@pytest.mark.parametrize("tensor_type", FITTED, ids=lambda t: t.name)
def test_blocks_do_not_see_each_other(tensor_type: TensorType) -> None:
    x = normal(5, 19, 256)
    np.testing.assert_array_equal(fit(tensor_type, x), np.concatenate([fit(tensor_type, row) for row in x]))


@pytest.mark.parametrize("tensor_type", FITTED, ids=lambda t: t.name)
@pytest.mark.parametrize("value", [0.0, -0.75, 3.0])
def test_constant_blocks(tensor_type: TensorType, value: float) -> None:
    x = np.full((2, 256), value, np.float32)
    np.testing.assert_allclose(dequantize(tensor_type, fit(tensor_type, x), x.shape), x, rtol=0.02)


def best_even_scale(x: np.ndarray, low: int, high: int) -> float:
    """The least squared error of d * q over all d: codes change only where x / d crosses a half, so the codes between
    each two neighbouring crossings are tried with the scale that is best for them."""
    borders = np.array([c + 0.5 for c in range(low, high)])
    crossings = np.unique(np.abs(np.outer(borders, 1 / x)).reshape(-1))
    inverses = np.concatenate([crossings[:-1] / 2 + crossings[1:] / 2, [crossings[0] / 2, crossings[-1] * 2]])
    trials = np.concatenate([inverses, -inverses])
    q = np.clip(np.rint(np.outer(trials, x)), low, high)
    qq = np.maximum(np.sum(q * q, axis=1), 1)
    return float(np.sum(x**2) - np.max((q @ x) ** 2 / qq))


@pytest.mark.parametrize(("name", "low", "high"), [("Q4_0", -8, 7), ("Q5_0", -16, 15)])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_scales_are_nearly_the_best_there_are(name: str, low: int, high: int, seed: int) -> None:
    """Each group's root error is within a twelfth of the exact optimum (that of the exhaustive sweep)."""
    x = normal(seed, 4, 32)
    d, _ = _native.fit_groups(name, x, "portable")
    for group, scale in zip(x.astype(np.float64), d.astype(np.float64), strict=True):
        q = np.clip(np.rint(group / scale), low, high)
        found = float(np.sum((group - scale * q) ** 2))
        assert np.sqrt(found) <= 13 / 12 * np.sqrt(best_even_scale(group, low, high))


def test_what_is_not_looked_for_is_rounded() -> None:
    x = normal(6, 2, 64)
    for name in ("F32", "F16", "BF16", "Q8_0"):
        np.testing.assert_array_equal(fit(TensorType[name], x), quantize(TensorType[name], x))


def test_wrong_shapes_and_types_are_refused() -> None:
    with pytest.raises(ValueError, match="not a whole number of Q6_K blocks"):
        fit(TensorType.Q6_K, np.zeros((2, 128), np.float32))
    with pytest.raises(ValueError, match="type='Q8_0' has no scales to look for"):
        _native.fit_groups("Q8_0", np.zeros((1, 32), np.float32), "portable")
    with pytest.raises(ValueError, match="type='Q4_0' has no super-blocks"):
        _native.fit_super_blocks("Q4_0", np.zeros((1, 256), np.float32), "portable")
    with pytest.raises(ValueError, match="rows of 16 weights, not 32"):
        _native.fit_groups("Q4_0", np.zeros((1, 16), np.float32), "portable")
