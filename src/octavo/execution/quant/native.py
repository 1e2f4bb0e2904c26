"""Which formats have native kernels, and how the others get into one of them at load.

| stored | becomes | loss |
|---|---|---|
| TQ1_0, TQ2_0 | Q2_K | none: d * (code - 1) with a scale and an offset of one step |
| IQ3_S, IQ3_XXS, IQ2_XXS, IQ1_S | S8 | none: the numbers of their tables fit eight bits, scales are per 32 |
| IQ2_S, IQ2_XS, IQ1_M | S8 | at most `S8_MAX_ERROR` of the largest magnitude in its 32 per weight |

The last three have a scale per sixteen weights, S8 has one per 32.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.layout import LAYOUTS, blocks_of, pieces
from octavo.execution.quant.multiples import HALF, Multiples, read_multiples
from octavo.execution.quant.packing import pack
from octavo.execution.quant.types import TensorType

S8_MAX_ERROR = 1 / 254 + 2**-23
"""|w' - w| / max |w| in the block of 32: half a code, and roundings of float32."""

_GROUP = 32
_LARGEST_CODE = 127


def _as_q2_k(multiples: Multiples) -> NDArray[np.void]:
    out = np.zeros(len(multiples.unit), dtype=LAYOUTS[TensorType.Q2_K])
    out["d"] = out["dmin"] = multiples.unit
    out["scales"] = 1 | 1 << 4
    out["qs"] = pack((multiples.numbers + 1).astype(np.uint8), 2, 32)
    return out


def _s8_blocks(scales: NDArray[np.float32], codes: NDArray[np.int8]) -> NDArray[np.void]:
    """`[n, 8]` scales and `[n, 256]` codes -> `[n * 8]` blocks."""
    out = np.empty(scales.size, dtype=LAYOUTS[TensorType.S8])
    out["d"] = scales.reshape(-1)
    out["qs"] = codes.reshape(-1, _GROUP)
    return out


def _as_s8(multiples: Multiples) -> NDArray[np.void]:
    return _s8_blocks(multiples.scales[:, ::2], multiples.numbers)


def _rounded_to_s8(multiples: Multiples) -> NDArray[np.void]:
    """The products of multipliers and numbers are whole, and rounded on 127 steps of the largest in 32."""
    products = (np.repeat(multiples.multipliers.astype(np.int16), HALF, axis=1) * multiples.numbers).astype(np.float32)
    steps = np.abs(products.reshape(len(products), -1, _GROUP)).max(axis=2) / np.float32(_LARGEST_CODE)
    codes = np.rint(products / np.repeat(steps, _GROUP, axis=1))
    return _s8_blocks(multiples.unit[:, None] * steps, codes.astype(np.int8))


_CONVERSIONS: dict[TensorType, tuple[TensorType, Callable[[Multiples], NDArray[np.void]]]] = {
    TensorType.TQ1_0: (TensorType.Q2_K, _as_q2_k),
    TensorType.TQ2_0: (TensorType.Q2_K, _as_q2_k),
    TensorType.IQ3_S: (TensorType.S8, _as_s8),
    TensorType.IQ3_XXS: (TensorType.S8, _as_s8),
    TensorType.IQ2_XXS: (TensorType.S8, _as_s8),
    TensorType.IQ1_S: (TensorType.S8, _as_s8),
    TensorType.IQ2_S: (TensorType.S8, _rounded_to_s8),
    TensorType.IQ2_XS: (TensorType.S8, _rounded_to_s8),
    TensorType.IQ1_M: (TensorType.S8, _rounded_to_s8),
}

NATIVE_TYPES = frozenset(TensorType) - frozenset(_CONVERSIONS)
"""Formats that the native executor computes with as they are stored."""


def native_type(tensor_type: TensorType) -> TensorType:
    """The format in which a tensor of this format is computed with (itself where it is native)."""
    return tensor_type if tensor_type in NATIVE_TYPES else _CONVERSIONS[tensor_type][0]


def to_native(
    tensor_type: TensorType, raw: NDArray[np.uint8], shape: tuple[int, ...]
) -> tuple[TensorType, NDArray[np.uint8]]:
    """The tensor in a native format: `raw` itself where it is in one, else a converted copy (see the table above)."""
    if tensor_type in NATIVE_TYPES:
        return tensor_type, raw
    target, convert = _CONVERSIONS[tensor_type]
    out = np.empty(target.num_bytes(shape), dtype=np.uint8)
    blocks = blocks_of(tensor_type, raw)
    converted = out.reshape(len(blocks), target.num_bytes((tensor_type.block_size,)))
    for piece in pieces(len(blocks), tensor_type.block_size):
        multiples = read_multiples(tensor_type, blocks[piece])
        converted[piece] = convert(multiples).view(np.uint8).reshape(-1, converted.shape[1])
    return target, out
