import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.execution.quant.packing import (
    pack,
    pack_bit_per_weight,
    pack_q3_scales,
    pack_scales_and_mins,
    unpack,
    unpack_bit_per_weight,
    unpack_q3_scales,
    unpack_scales_and_mins,
)

SEEDS = st.integers(0, 2**32 - 1)


def random_bytes(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(("bits", "run", "width"), [(4, 16, 16), (4, 32, 128), (2, 32, 64), (1, 32, 32), (2, 4, 4)])
@given(seed=SEEDS)
def test_pack_undoes_unpack(bits: int, run: int, width: int, seed: int) -> None:
    packed = random_bytes(seed, 3, width)
    codes = unpack(packed, bits, run)
    assert codes.shape == (3, width * 8 // bits)
    assert codes.max() < 1 << bits
    np.testing.assert_array_equal(pack(codes, bits, run), packed)


def test_order_of_unpack() -> None:
    """Low nibbles of a run first, then its high nibbles; then the next run."""
    packed = np.array([[0x21, 0x43, 0x65, 0x87]], np.uint8)
    assert unpack(packed, 4, 2).tolist() == [[1, 3, 2, 4, 5, 7, 6, 8]]


@given(seed=SEEDS)
def test_bit_per_weight(seed: int) -> None:
    words = random_bytes(seed, 5, 4).view("<u4").reshape(-1)
    bits = unpack_bit_per_weight(words)
    assert [sum(int(b) << j for j, b in enumerate(row)) for row in bits] == words.tolist()
    np.testing.assert_array_equal(pack_bit_per_weight(bits), words)


@given(seed=SEEDS)
def test_scales_and_mins(seed: int) -> None:
    packed = random_bytes(seed, 4, 12)
    scales, mins = unpack_scales_and_mins(packed)
    for block, row_scales, row_mins in zip(packed.tolist(), scales.tolist(), mins.tolist(), strict=True):
        assert row_scales == [b & 63 for b in block[:4]] + [block[8 + j] & 15 | block[j] >> 6 << 4 for j in range(4)]
        assert row_mins == [b & 63 for b in block[4:8]] + [block[8 + j] >> 4 | block[4 + j] >> 6 << 4 for j in range(4)]
    np.testing.assert_array_equal(pack_scales_and_mins(scales, mins), packed)


@given(seed=SEEDS)
def test_q3_scales(seed: int) -> None:
    packed = random_bytes(seed, 4, 12)
    scales = unpack_q3_scales(packed)
    for block, row in zip(packed.tolist(), scales.tolist(), strict=True):
        low = [b & 15 for b in block[:8]] + [b >> 4 for b in block[:8]]
        high = [block[8 + j % 4] >> 2 * (j // 4) & 3 for j in range(16)]
        assert row == [(lo | hi << 4) - 32 for lo, hi in zip(low, high, strict=True)]
    np.testing.assert_array_equal(pack_q3_scales(scales), packed)
