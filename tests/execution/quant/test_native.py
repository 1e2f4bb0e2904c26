import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import _native
from octavo.execution.quant import NATIVE_TYPES, TensorType, dequantize, native_type, to_native
from octavo.execution.quant.native import S8_MAX_ERROR
from tests.execution.quant.blocks import random_blocks


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
    target, raw = to_native(TensorType.IQ2_S, np.zeros(0, np.uint8), (0, 256))
    assert (target, raw.size) == (TensorType.S8, 0)


LOSSLESS = {
    "TQ1_0": "Q2_K",
    "TQ2_0": "Q2_K",
    "IQ3_S": "S8",
    "IQ3_XXS": "S8",
    "IQ2_XXS": "S8",
    "IQ1_S": "S8",
}
ROUNDED = ["IQ2_S", "IQ2_XS", "IQ1_M"]


def test_every_conversion_is_tested() -> None:
    assert {t.name for t in TensorType} - {t.name for t in NATIVE_TYPES} == {*LOSSLESS, *ROUNDED}


@pytest.mark.parametrize(("name", "target"), LOSSLESS.items())
@given(seed=st.integers(0, 2**32 - 1))
def test_lossless_conversions(name: str, target: str, seed: int) -> None:
    converted_to, before, after = both(TensorType[name], seed)
    assert converted_to is TensorType[target]
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("name", ROUNDED)
@given(seed=st.integers(0, 2**32 - 1))
def test_error_of_rounding_to_s8(name: str, seed: int) -> None:
    target, before, after = both(TensorType[name], seed)
    assert target is TensorType.S8
    largest = np.abs(before.reshape(-1, 32)).max(axis=1)
    error = np.abs(after - before).reshape(-1, 32).max(axis=1)
    assert (error <= largest * S8_MAX_ERROR).all()


@pytest.mark.parametrize("name", ["IQ2_S", "TQ1_0"])
def test_pieces_join_without_seams(name: str) -> None:
    """A tensor larger than one piece equals its halves converted on their own."""
    tensor_type = TensorType[name]
    blocks = 2 * (1 << 17) // tensor_type.block_size + 6
    raw = random_blocks(tensor_type, blocks, seed=1)
    _, whole = to_native(tensor_type, raw, (blocks, tensor_type.block_size))
    halves = [to_native(tensor_type, half, (blocks // 2, tensor_type.block_size))[1] for half in np.split(raw, 2)]
    np.testing.assert_array_equal(whole, np.concatenate(halves))


def test_conversion_of_a_big_tensor_needs_little_more_than_its_result() -> None:
    blocks = 20_000
    raw = random_blocks(TensorType.IQ2_S, blocks, seed=2)
    tracemalloc.start()
    _, converted = to_native(TensorType.IQ2_S, raw, (blocks, 256))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < converted.nbytes + (16 << 20)
