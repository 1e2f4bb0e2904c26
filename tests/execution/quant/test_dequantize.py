import json
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.execution.quant import TensorType, dequantize
from octavo.execution.quant.layout import LAYOUTS
from tests.execution.quant.blocks import random_blocks
from tests.execution.quant.golden_file import GOLDEN


def bits(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)


OF_FILES = [t for t in TensorType if t.is_in_files]


@pytest.mark.parametrize("tensor_type", [t for t in OF_FILES if t in LAYOUTS], ids=lambda t: t.name)
def test_golden_blocks(tensor_type: TensorType) -> None:
    golden = json.loads(GOLDEN.read_text())[tensor_type.name]
    raw = np.frombuffer(bytes.fromhex(golden["raw"]), np.uint8)
    expected = np.frombuffer(bytes.fromhex(golden["float32"]), "<f4")
    values = dequantize(tensor_type, raw, (len(expected) // tensor_type.block_size, tensor_type.block_size))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(bits(values), bits(expected))


def test_golden_file_is_complete() -> None:
    assert set(json.loads(GOLDEN.read_text())) == {t.name for t in LAYOUTS if t.is_in_files}


@pytest.mark.parametrize("tensor_type", OF_FILES, ids=lambda t: t.name)
def test_bits_of_the_public_package(tensor_type: TensorType) -> None:
    """Any bytes at all, so scales are also subnormal, infinite and NaN."""
    gguf = pytest.importorskip("gguf")
    shape = (97, 3 * 256)
    raw = np.random.default_rng(tensor_type.ggml_id).integers(0, 256, tensor_type.num_bytes(shape), dtype=np.uint8)
    with np.errstate(all="ignore"):
        ours = dequantize(tensor_type, raw, shape)
        theirs = gguf.quants.dequantize(raw.reshape(97, -1), gguf.GGMLQuantizationType[tensor_type.name])
    same = (bits(ours) == bits(theirs)) | (np.isnan(ours) & np.isnan(theirs.reshape(shape))).reshape(-1)
    assert same.all()


def test_float_types() -> None:
    x = np.array([[1.5, -2.0, 0.0, 65504.0]], np.float32)
    assert dequantize(TensorType.F32, x.view(np.uint8).reshape(-1), (1, 4)).tolist() == x.tolist()
    assert dequantize(TensorType.F16, x.astype("<f2").view(np.uint8).reshape(-1), (1, 4)).tolist() == x.tolist()
    bf16 = (x.view("<u4") >> 16).astype("<u2").view(np.uint8).reshape(-1)
    assert dequantize(TensorType.BF16, bf16, (1, 4)).tolist() == [[1.5, -2.0, 0.0, 65280.0]]


def test_z4_by_hand() -> None:
    raw = np.concatenate([np.array([0.5], "<f2").view(np.uint8), [11], np.arange(16) | np.arange(15, -1, -1) << 4])
    values = dequantize(TensorType.Z4, raw.astype(np.uint8), (32,))
    assert values.tolist() == [0.5 * (q - 11) for q in [*range(16), *range(15, -1, -1)]]


def test_s8_scale_is_float32() -> None:
    scale = np.float32(0.1)
    raw = np.concatenate([np.array([scale]).view(np.uint8), np.arange(-128, 128, 8).astype(np.int8).view(np.uint8)])
    assert dequantize(TensorType.S8, raw, (32,)).tolist() == [float(scale * np.float32(q)) for q in range(-128, 128, 8)]


def e4m3fn(code: int) -> float:
    """The number of a code, from the specification: bias 7, exponent 0 subnormal, all ones NaN."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 127 == 127:
        return math.nan
    size = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if code & 128 else size


def test_f8_numbers_are_those_of_the_specification() -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    raw = np.hstack([np.tile(np.float32([3]).view(np.uint8), (8, 1)), codes]).reshape(-1)
    expected = [3 * e4m3fn(code) for code in range(256)]
    expected[96:128] = expected[224:256] = [math.nan] * 32  # the blocks of the two NaN
    np.testing.assert_array_equal(dequantize(TensorType.F8, raw, (256,)), expected)


def test_pieces_join_without_seams() -> None:
    """A tensor of more bytes than are converted at one time equals its blocks converted one by one."""
    raw = random_blocks(TensorType.Q4_0, 40_000, seed=3)
    whole = dequantize(TensorType.Q4_0, raw, (40_000, 32))
    for row in (0, 14_562, 14_563, 14_564, 29_127, 39_999):
        one = dequantize(TensorType.Q4_0, raw[row * 18 : row * 18 + 18], (32,))
        np.testing.assert_array_equal(bits(whole[row]), bits(one))


def test_read_only_and_strided_bytes_are_fine() -> None:
    raw = random_blocks(TensorType.Q8_0, 4, seed=0)
    spread = np.zeros(2 * len(raw), np.uint8)
    spread[::2] = raw
    spread.flags.writeable = False
    np.testing.assert_array_equal(
        dequantize(TensorType.Q8_0, spread[::2], (128,)), dequantize(TensorType.Q8_0, raw, (128,))
    )


def test_wrong_number_of_bytes() -> None:
    with pytest.raises(ValueError, match=r"Q8_0 of shape \(2, 32\) is 68 bytes, got 34 of uint8"):
        dequantize(TensorType.Q8_0, np.zeros(34, np.uint8), (2, 32))
    with pytest.raises(ValueError, match="got 17 of float32"):
        dequantize(TensorType.Q8_0, np.zeros(17, np.float32), (2, 32))
