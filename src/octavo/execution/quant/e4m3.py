"""Numbers of eight bits: a sign, four bits of exponent, three of mantissa (e4m3fn of the OCP 8-bit floating point
specification): subnormals, no infinity, one NaN of either sign, 448 the largest."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def _magnitudes() -> Floats:
    """`[127]` values of the codes without sign."""
    exponent, mantissa = np.divmod(np.arange(127), 8)
    return np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0)).astype(np.float32)


_MAGNITUDES = _magnitudes()
_MIDDLES = (_MAGNITUDES[:-1] + _MAGNITUDES[1:]) / 2
E4M3_MAX = np.float32(448)
E4M3_VALUES = np.concatenate([_MAGNITUDES, [np.nan], -_MAGNITUDES, [np.nan]]).astype(np.float32)
"""`[256]` code -> number."""


def nearest_e4m3(numbers: Floats) -> NDArray[np.uint8]:
    """The nearest code; of two equally near ones the even one; beyond 448 its code."""
    size = np.abs(numbers)
    below, above = (np.searchsorted(_MIDDLES, size, side) for side in ("left", "right"))
    codes = below + (below & 1) * (above - below)
    return (codes | np.signbit(numbers) << np.uint8(7)).astype(np.uint8)
