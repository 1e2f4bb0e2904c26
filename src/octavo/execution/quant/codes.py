"""Weights to small codes, and codes into the blocks of each format: what every way of choosing scales shares."""

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.layout import IQ4_NL_VALUES
from octavo.execution.quant.packing import (
    HIGH_NIBBLE,
    LOW_NIBBLE,
    pack,
    pack_bit_per_weight,
    pack_q3_scales,
    pack_scales_and_mins,
)

Blocks = NDArray[np.void]
Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]

_TABLE_STEPS = 256
"""Half units on either side of zero that the table of IQ4_NL spans: all its borders are multiples of a half."""
_BORDERS = (IQ4_NL_VALUES[1:].astype(np.float32) + IQ4_NL_VALUES[:-1]) / 2
_TABLE_INDICES = np.searchsorted(
    _BORDERS, np.arange(-_TABLE_STEPS, _TABLE_STEPS, dtype=np.float32) / 2, side="right"
).astype(np.uint8)


def float16(values: Floats) -> Floats:
    """Rounded to float16 and back."""
    return values.astype(np.float16).astype(np.float32)


def reciprocal(scale: Floats) -> Floats:
    """1 / scale, and 0 where the scale is 0 (a block of zeros)."""
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def codes_of(x: Floats, scale: Floats, offset: int, top: int) -> Codes:
    """Codes `x / scale + offset` rounded half up and clipped to 0..top."""
    rounded = x * reciprocal(scale)
    rounded += np.float32(offset + 0.5)
    np.floor(rounded, out=rounded)
    np.clip(rounded, 0, top, out=rounded)
    codes: Codes = rounded.astype(np.uint8)
    return codes


def table_codes(x: Floats, scale: Floats) -> Codes:
    """IQ4_NL's indices of the values nearest to `x / scale`."""
    halves = np.floor(x * (2 * reciprocal(scale)))
    places = np.clip(halves, -_TABLE_STEPS, _TABLE_STEPS - 1).astype(np.int16)
    codes: Codes = _TABLE_INDICES[places + _TABLE_STEPS]
    return codes


def fill_q4(out: Blocks, codes: Codes) -> None:
    """Q4_0, Q4_1 and IQ4_NL, whose scales are in `out` already."""
    out["qs"] = pack(codes, 4, 16)


def fill_q5(out: Blocks, codes: Codes) -> None:
    """Q5_0 and Q5_1, likewise."""
    out["qh"] = pack_bit_per_weight(codes >> HIGH_NIBBLE)
    out["qs"] = pack(codes & LOW_NIBBLE, 4, 16)


def fill_q2_k(out: Blocks, codes: Codes, scales: Codes, mins: Codes) -> None:
    """Scales and mins `[n, 16]`, four bits each."""
    out["scales"] = scales | (mins << HIGH_NIBBLE)
    out["qs"] = pack(codes, 2, 32)


def fill_q3_k(out: Blocks, codes: Codes, scales: NDArray[np.int8]) -> None:
    """Codes 0..7 stand for -4..3; scales `[n, 16]` in -32..31."""
    out["scales"] = pack_q3_scales(scales)
    out["qs"] = pack(codes & np.uint8(3), 2, 32)
    out["qh"] = pack(codes >> np.uint8(2), 1, 32)


def fill_q4_k(out: Blocks, codes: Codes, scales: Codes, mins: Codes) -> None:
    """Scales and mins `[n, 8]`, six bits each."""
    out["scales"] = pack_scales_and_mins(scales, mins)
    out["qs"] = pack(codes, 4, 32)


def fill_q5_k(out: Blocks, codes: Codes, scales: Codes, mins: Codes) -> None:
    """Scales and mins `[n, 8]`, six bits each."""
    out["scales"] = pack_scales_and_mins(scales, mins)
    out["qs"] = pack(codes & LOW_NIBBLE, 4, 32)
    out["qh"] = pack(codes >> HIGH_NIBBLE, 1, 32)


def fill_q6_k(out: Blocks, codes: Codes, scales: NDArray[np.int8]) -> None:
    """Codes 0..63 stand for -32..31; scales `[n, 16]`."""
    out["scales"] = scales
    out["ql"] = pack(codes & LOW_NIBBLE, 4, 64)
    out["qh"] = pack(codes >> HIGH_NIBBLE, 2, 32)
