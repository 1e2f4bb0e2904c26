import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.execution.quant import NATIVE_TYPES, TensorType, dequantize, native_type, to_native
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


@pytest.mark.parametrize("tensor_type", TensorType, ids=lambda t: t.name)
def test_every_type_has_a_native_target(tensor_type: TensorType) -> None:
    assert native_type(tensor_type) in NATIVE_TYPES
    shape = (2, 256)
    target, raw = to_native(tensor_type, np.zeros(tensor_type.num_bytes(shape), np.uint8), shape)
    assert (target, raw.size) == (native_type(tensor_type), target.num_bytes(shape))


@pytest.mark.parametrize(("name", "target"), [("Q3_K", "Q6_K"), ("IQ4_NL", "Q8_0")])
@given(seed=st.integers(0, 2**32 - 1))
def test_lossless_conversions(name: str, target: str, seed: int) -> None:
    converted_to, before, after = both(TensorType[name], seed)
    assert converted_to is TensorType[target]
    np.testing.assert_array_equal(after.view(np.uint32), before.view(np.uint32))


@pytest.mark.parametrize("name", ["Q5_1", "Q5_K", "Q2_K"])
@given(seed=st.integers(0, 2**32 - 1))
def test_error_of_conversion_to_q8_0(name: str, seed: int) -> None:
    target, before, after = both(TensorType[name], seed)
    assert target is TensorType.Q8_0
    largest = np.abs(before.reshape(-1, 32)).max(axis=1)
    error = np.abs(after - before).reshape(-1, 32).max(axis=1)
    assert (error <= largest * Q8_0_MAX_ERROR * (1 + 1e-6) + SUBNORMAL_SCALE_ERROR).all()


def test_conversion_adds_little_to_the_error_of_the_format() -> None:
    """The claim of the table: what conversion adds is small against the format's own rounding."""
    from octavo.execution.quant import quantize

    x = np.random.default_rng(0).normal(size=(64, 512)).astype(np.float32)
    for name, allowed in (("Q5_1", 1.03), ("Q5_K", 1.03), ("Q2_K", 1.01)):
        raw = quantize(TensorType[name], x)
        target, converted = to_native(TensorType[name], raw, x.shape)
        before = np.sqrt(np.mean((dequantize(TensorType[name], raw, x.shape) - x) ** 2))
        after = np.sqrt(np.mean((dequantize(target, converted, x.shape) - x) ** 2))
        assert after < before * allowed, name
