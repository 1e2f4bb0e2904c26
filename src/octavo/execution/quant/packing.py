"""Small codes in and out of bytes, in the orders that the block formats use.

Two orders exist. *Halves*: in each run of bytes the lowest bits hold the first weights, the next bits the weights that
follow them. *Six-bit scales*: eight scales and eight offsets in twelve bytes (Q4_K, Q5_K), sixteen scales in twelve
bytes (Q3_K).
"""

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]

LOW_NIBBLE, HIGH_NIBBLE = np.uint8(15), np.uint8(4)
"""`x & LOW_NIBBLE` and `x >> HIGH_NIBBLE` are the two halves of a byte."""
_SIX_BITS, _TOP_TWO = np.uint8(63), np.uint8(6)


def unpack(packed: Codes, bits: int, run: int) -> Codes:
    """`[n, bytes]` -> `[n, bytes * 8 / bits]`: each run of `run` bytes gives its lowest codes, then the next, ..."""
    n = packed.shape[0]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    planes = packed.reshape(n, -1, 1, run) >> shifts
    return (planes & np.uint8((1 << bits) - 1)).reshape(n, -1)


def pack(codes: Codes, bits: int, run: int) -> Codes:
    """The inverse of `unpack`."""
    n = codes.shape[0]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    planes = codes.reshape(n, -1, 8 // bits, run) << shifts
    return np.asarray(np.bitwise_or.reduce(planes, axis=2)).reshape(n, -1)


def unpack_bit_per_weight(words: NDArray[np.uint32]) -> Codes:
    """`[n]` 32-bit words -> `[n, 32]`: bit j belongs to weight j."""
    return ((words[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(np.uint8)


def pack_bit_per_weight(bits: Codes) -> NDArray[np.uint32]:
    """`[n, 32]` zeros and ones -> `[n]` words: the inverse of `unpack_bit_per_weight`."""
    return np.packbits(bits, axis=-1, bitorder="little").view("<u4").reshape(-1)


def unpack_scales_and_mins(packed: Codes) -> tuple[Codes, Codes]:
    """`[n, 12]` -> scales `[n, 8]` and mins `[n, 8]`, six bits each.

    Bytes 0..3 hold scales 0..3, bytes 4..7 mins 0..3, in their low six bits; bytes 8..11 hold the low nibbles of
    scale and min 4..7, whose top two bits sit in the top of bytes 0..3 and 4..7.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & _SIX_BITS, (third & LOW_NIBBLE) | ((first >> _TOP_TWO) << HIGH_NIBBLE)], axis=1)
    mins = np.concatenate([second & _SIX_BITS, (third >> HIGH_NIBBLE) | ((second >> _TOP_TWO) << HIGH_NIBBLE)], axis=1)
    return scales, mins


def pack_scales_and_mins(scales: Codes, mins: Codes) -> Codes:
    """The inverse of `unpack_scales_and_mins`."""
    first = scales[:, :4] | ((scales[:, 4:] >> HIGH_NIBBLE) << _TOP_TWO)
    second = mins[:, :4] | ((mins[:, 4:] >> HIGH_NIBBLE) << _TOP_TWO)
    third = (scales[:, 4:] & LOW_NIBBLE) | ((mins[:, 4:] & LOW_NIBBLE) << HIGH_NIBBLE)
    return np.concatenate([first, second, third], axis=1)


def unpack_q3_scales(packed: Codes) -> NDArray[np.int8]:
    """`[n, 12]` -> `[n, 16]` signed scales -32..31: low nibbles in bytes 0..7, top two bits in bytes 8..11."""
    low = unpack(np.ascontiguousarray(packed[:, :8]), 4, 8)
    high = unpack(np.ascontiguousarray(packed[:, 8:]), 2, 4)
    return (low | (high << HIGH_NIBBLE)).astype(np.int8) - np.int8(32)


def pack_q3_scales(scales: NDArray[np.int8]) -> Codes:
    """The inverse of `unpack_q3_scales`."""
    codes = (scales + np.int8(32)).astype(np.uint8)
    return np.concatenate([pack(codes & LOW_NIBBLE, 4, 8), pack(codes >> HIGH_NIBBLE, 2, 4)], axis=1)
