import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import _native
from octavo.execution.quant import NATIVE_TYPES, TensorType, dequantize, native_type, quantize, to_native
from octavo.execution.quant.native import Q8_0_MAX_ERROR
from tests.execution.quant.blocks import random_blocks

SUBNORMAL_SCALE_ERROR = 127 * 2**-25


def both(tensor_type: TensorType, seed: int, blocks: int = 12) -> tuple[TensorType, np.ndarray, np.ndarray]:
    """The target, and the same tensor decoded before and after conversion."""
    raw = random_blocks(tensor_type, blocks, seed)
    shape = (blocks // 2, 2 * tensor_type.block_size)
    target, converted = to_native(tensor_type, raw, shape)
    return target, dequantize(tensor_type, raw, shape), dequantize(target, converted, shape)


@pytest.mark.parametrize("tensor_type", sorted(NATIVE_TYPES, key=lambda t: t.name), ids=lambda t: t.name)
def test_native_bytes_are_passed_on_untouched(tensor_type: TensorType) -> None:
    raw = np.zeros(tensor_type.num_bytes((2, 256)), np.uint8)
    assert to_native(tensor_type, raw, (2, 256)) == (tensor_type, raw)
    assert to_native(tensor_type, raw, (2, 256))[1] is raw


def test_every_format_with_a_kernel_is_native() -> None:
    """No format is converted that the native core could compute with as it is."""
    with_kernel = set()
    for tensor_type in TensorType:
        try:
            _native.linear.pack(tensor_type.ggml_id, np.zeros(tensor_type.num_bytes((16, 256)), np.uint8), 16, 256)
            with_kernel.add(tensor_type)
        except ValueError as error:
            assert "no kernel" in str(error)
    assert with_kernel == NATIVE_TYPES


@pytest.mark.parametrize("tensor_type", TensorType, ids=lambda t: t.name)
def test_every_type_has_a_native_target(tensor_type: TensorType) -> None:
    assert native_type(tensor_type) in NATIVE_TYPES
    shape = (2, 256)
    target, raw = to_native(tensor_type, np.zeros(tensor_type.num_bytes(shape), np.uint8), shape)
    assert (target, raw.size) == (native_type(tensor_type), target.num_bytes(shape))


def test_tensor_without_rows() -> None:
    target, raw = to_native(TensorType.Q2_K, np.zeros(0, np.uint8), (0, 256))
    assert (target, raw.size) == (TensorType.Q8_0, 0)


@pytest.mark.parametrize(
    ("name", "target"), [("Q3_K", "Q6_K"), ("IQ4_NL", "Q8_0"), ("Z4", "F32"), ("S8", "F32"), ("F8", "F32")]
)
@given(seed=st.integers(0, 2**32 - 1))
def test_lossless_conversions(name: str, target: str, seed: int) -> None:
    converted_to, before, after = both(TensorType[name], seed)
    assert converted_to is TensorType[target]
    np.testing.assert_array_equal(after.view(np.uint32), before.view(np.uint32))


@pytest.mark.parametrize("name", ["Q2_K"])
@given(seed=st.integers(0, 2**32 - 1))
def test_error_of_conversion_to_q8_0(name: str, seed: int) -> None:
    target, before, after = both(TensorType[name], seed)
    assert target is TensorType.Q8_0
    largest = np.abs(before.reshape(-1, 32)).max(axis=1)
    error = np.abs(after - before).reshape(-1, 32).max(axis=1)
    assert (error <= largest * Q8_0_MAX_ERROR * (1 + 1e-6) + SUBNORMAL_SCALE_ERROR).all()


@pytest.mark.parametrize("name", ["Q3_K", "Q2_K"])
def test_pieces_join_without_seams(name: str) -> None:
    """A tensor larger than one piece equals its halves converted on their own."""
    blocks = 2 * (1 << 17) // 256 + 6
    raw = random_blocks(TensorType[name], blocks, seed=1)
    _, whole = to_native(TensorType[name], raw, (blocks, 256))
    halves = [to_native(TensorType[name], half, (blocks // 2, 256))[1] for half in np.split(raw, 2)]
    np.testing.assert_array_equal(whole, np.concatenate(halves))


def test_conversion_of_a_big_tensor_needs_little_more_than_its_result() -> None:
    blocks = 20_000
    raw = random_blocks(TensorType.Q2_K, blocks, seed=2)
    tracemalloc.start()
    _, converted = to_native(TensorType.Q2_K, raw, (blocks, 256))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < converted.nbytes + (16 << 20)


def test_conversion_adds_little_to_the_error_of_the_format() -> None:
    """The claim of the table: what conversion adds is small against the format's own rounding."""
    x = np.random.default_rng(0).normal(size=(64, 512)).astype(np.float32)
    raw = quantize(TensorType.Q2_K, x)
    target, converted = to_native(TensorType.Q2_K, raw, x.shape)
    before = np.sqrt(np.mean((dequantize(TensorType.Q2_K, raw, x.shape) - x) ** 2))
    after = np.sqrt(np.mean((dequantize(target, converted, x.shape) - x) ** 2))
    assert after < before * 1.01
