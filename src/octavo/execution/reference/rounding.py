"""The rounding of activations before a linear of an integer weight format, as csrc/linear/linear.h defines it."""

import numpy as np

from octavo.execution.protocols import Float32

_GROUP = 32
_TOP = np.float32(127)
_SMALLEST = np.float32(2.0**-119)
"""Groups whose largest magnitude lies below are zero: 127 / max would overflow."""


def round_activations(x: Float32) -> Float32:
    """Values that remain of x `[rows, k]` after 8-bit quantisation per row and 32 inputs.

    Per group: scale s = max|x| / 127, codes q = round_to_even(x * (127 / max|x|)) in [-127, 127], values s * q. A group
    with an infinity or a NaN is all NaN.
    """
    groups = x.reshape(len(x), x.shape[1] // _GROUP, _GROUP)
    top = np.abs(groups).max(axis=-1, keepdims=True)
    finite = np.isfinite(top)
    scale = np.where(finite, np.where(top < _SMALLEST, 0, top / _TOP), np.float32(np.nan))
    inverse = np.divide(_TOP, top, out=np.zeros_like(top), where=finite & (top >= _SMALLEST))
    codes: Float32 = np.rint(np.where(finite, groups, 0) * inverse)
    return (codes * scale).reshape(x.shape)
