import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.execution.quant import WRITABLE_TYPES, TensorType, dequantize, quantize
from octavo.execution.quant.e4m3 import E4M3_VALUES, nearest_e4m3

WRITTEN = [t for t in TensorType if t in WRITABLE_TYPES]
BLOCK_TYPES = [t for t in WRITTEN if t.block_size > 1]
SAME_BYTES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
RANGE_ERROR = {"Q4_0": 1 / 16, "Q4_1": 1 / 30, "Q5_0": 1 / 32, "Q5_1": 1 / 62, "Q8_0": 1 / 254, "IQ4_NL": 0.12,
               "S8": 1 / 254, "F8": 1 / 28, "MXFP4": 1 / 4}  # fmt: skip
"""Largest error as a share of the block's largest magnitude (with offset: of its range), without scale rounding."""


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", SAME_BYTES)
def test_bytes_of_the_public_package(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    x = normal(1, 65, 512)
    x[3] = 0
    x[4, :32] = 7.25
    theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(quantize(TensorType[name], x), theirs)


@pytest.mark.parametrize("tensor_type", BLOCK_TYPES, ids=lambda t: t.name)
def test_error_shrinks_with_bits(tensor_type: TensorType) -> None:
    """Root mean square error on normal weights: what plain rounding to these grids gives, plus a tenth."""
    bound = {"Q2_K": 0.36, "Q3_K": 0.17, "Q4_0": 0.093, "Q4_1": 0.089, "Q4_K": 0.087, "IQ4_NL": 0.089, "Q5_0": 0.049,
             "Q5_1": 0.043, "Q5_K": 0.043, "Q6_K": 0.021, "Q8_0": 0.0061, "Z4": 0.089,
             "S8": 0.0061, "F8": 0.03, "MXFP4": 0.13, "IQ4_XS": 0.089}[tensor_type.name]  # fmt: skip
    x = normal(2, 64, 512)
    error = dequantize(tensor_type, quantize(tensor_type, x), x.shape) - x
    assert 0 < np.sqrt(np.mean(error**2)) < bound


@pytest.mark.parametrize("name", sorted(RANGE_ERROR))
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-2, 1e3))
def test_error_of_each_weight_is_bounded(name: str, seed: int, scale: float) -> None:
    x = normal(seed, 4, 32) * np.float32(scale)
    spread = np.ptp(x, axis=1) if name.endswith("_1") else np.abs(x).max(axis=1)
    error = np.abs(dequantize(TensorType[name], quantize(TensorType[name], x), x.shape) - x)
    rounding_of_scales = np.abs(x).max(axis=1) * 2**-9
    top_code_clipped = spread / 8 * (name == "Q4_0") / 2 + spread / 16 * (name == "Q5_0") / 2
    assert (error.max(axis=1) <= spread * RANGE_ERROR[name] + rounding_of_scales + top_code_clipped).all()


@pytest.mark.parametrize("tensor_type", WRITTEN, ids=lambda t: t.name)
@pytest.mark.parametrize("value", [0.0, -0.75, 3.0])
def test_constant_blocks(tensor_type: TensorType, value: float) -> None:
    x = np.full((2, 256), value, np.float32)
    back = dequantize(tensor_type, quantize(tensor_type, x), x.shape)
    np.testing.assert_allclose(back, x, rtol=0.02)


@pytest.mark.parametrize("tensor_type", WRITTEN, ids=lambda t: t.name)
def test_blocks_do_not_see_each_other(tensor_type: TensorType) -> None:
    x = normal(5, 3, 256)
    rows = [quantize(tensor_type, row) for row in x]
    np.testing.assert_array_equal(quantize(tensor_type, x), np.concatenate(rows))


def test_e4m3_rounds_to_the_nearest_ties_to_even() -> None:
    numbers = E4M3_VALUES[:127]
    between = (numbers[:-1] + numbers[1:]) / 2
    codes = nearest_e4m3(np.concatenate([between, -between, np.nextafter(between, 0), np.nextafter(between, 500)]))
    below = np.arange(126)
    even = below + below % 2
    assert codes.tolist() == [*even, *(even + 128), *below, *(below + 1)]


def test_bf16_rounds_to_even_and_keeps_nan() -> None:
    x = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7FC00001, 0x7F800000], np.uint32).view(np.float32)
    assert quantize(TensorType.BF16, x).view("<u2").tolist() == [0x3F80, 0x3F82, 0x3F81, 0x7FC0, 0x7F80]


def test_formats_that_are_only_read_are_refused() -> None:
    with pytest.raises(ValueError, match=r"IQ2_XS is read, not written; take one of BF16, "):
        quantize(TensorType.IQ2_XS, np.zeros((2, 256), np.float32))


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="not a whole number of Q6_K blocks of 256"):
        quantize(TensorType.Q6_K, np.zeros((2, 128), np.float32))
