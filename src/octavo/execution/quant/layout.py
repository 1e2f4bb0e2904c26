"""The bytes of one block of each format, as NumPy structured types.

One description serves reading and writing. Sources: the GGUF specification and ggml's block structures (public
format facts); Z4, S8 and F8 are Octavo's own. ``d`` is a scale, ``e`` one that is a power of two, ``m`` a float16
offset, ``qs`` packed codes, ``qh`` their high bits.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.types import TensorType

LAYOUTS: dict[TensorType, np.dtype[np.void]] = {
    TensorType.Q4_0: np.dtype([("d", "<f2"), ("qs", "u1", 16)]),
    TensorType.Q4_1: np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)]),
    TensorType.Q5_0: np.dtype([("d", "<f2"), ("qh", "<u4"), ("qs", "u1", 16)]),
    TensorType.Q5_1: np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "<u4"), ("qs", "u1", 16)]),
    TensorType.Q8_0: np.dtype([("d", "<f2"), ("qs", "i1", 32)]),
    TensorType.IQ4_NL: np.dtype([("d", "<f2"), ("qs", "u1", 16)]),
    TensorType.Q2_K: np.dtype([("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")]),
    TensorType.Q3_K: np.dtype([("qh", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")]),
    TensorType.Q4_K: np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)]),
    TensorType.Q5_K: np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)]
    ),
    TensorType.Q6_K: np.dtype([("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]),
    TensorType.IQ4_XS: np.dtype([("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)]),
    TensorType.IQ3_S: np.dtype(
        [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)]
    ),
    TensorType.IQ3_XXS: np.dtype([("d", "<f2"), ("qs", "u1", 64), ("scales", "<u4", 8)]),
    TensorType.IQ2_S: np.dtype(
        [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)]
    ),
    TensorType.IQ2_XS: np.dtype([("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)]),
    TensorType.IQ2_XXS: np.dtype([("d", "<f2"), ("qs", "u1", 64)]),
    TensorType.IQ1_M: np.dtype([("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)]),
    TensorType.IQ1_S: np.dtype([("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)]),
    TensorType.TQ2_0: np.dtype([("qs", "u1", 64), ("d", "<f2")]),
    TensorType.TQ1_0: np.dtype([("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")]),
    TensorType.MXFP4: np.dtype([("e", "u1"), ("qs", "u1", 16)]),
    TensorType.Z4: np.dtype([("d", "<f2"), ("zero", "u1"), ("qs", "u1", 16)]),
    TensorType.S8: np.dtype([("d", "<f4"), ("qs", "i1", 32)]),
    TensorType.F8: np.dtype([("d", "<f4"), ("qs", "u1", 32)]),
}

IQ4_NL_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8)
"""IQ4_NL codes are indices into this fixed table."""
MXFP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.int8)
"""The numbers of MXFP4's codes (e2m1 of the OCP microscaling specification), doubled."""


_WEIGHTS_AT_ONCE = 1 << 17
"""Conversions go in pieces of about so many weights: temporaries stay in the cache, and small beside a big tensor."""


def pieces(num_blocks: int, block_size: int) -> Iterator[slice]:
    """Cuts a run of blocks into slices."""
    step = _WEIGHTS_AT_ONCE // block_size
    return (slice(start, start + step) for start in range(0, num_blocks, step))


def blocks_of(tensor_type: TensorType, raw: NDArray[np.uint8]) -> NDArray[np.void]:
    """`raw` bytes as an array of blocks (a view where its memory is contiguous)."""
    return np.ascontiguousarray(raw).reshape(-1).view(LAYOUTS[tensor_type])
