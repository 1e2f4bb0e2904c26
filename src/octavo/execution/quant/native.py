"""Which formats have native kernels, and how the others get into one of them at load.

| stored | becomes | loss |
|---|---|---|
| Q3_K | Q6_K | none: same groups of 16, same float16 scale, six-bit scales fit eight bits, codes -4..3 fit -32..31 |
| IQ4_NL | Q8_0 | none: same float16 scale, the table's values are the codes |
| Q2_K | Q8_0 | at most `Q8_0_MAX_ERROR` of the block's largest magnitude per weight |
| Z4, S8, F8 | F32 | none |

Q2_K has an offset per group of sixteen. Other formats with offsets have one per 32: rounding to one of those costs an
order of magnitude more than Q8_0 does; float16 would lose less still, at twice the memory.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.dequantize import dequantize, q3_k_codes
from octavo.execution.quant.layout import IQ4_NL_VALUES, LAYOUTS, blocks_of, pieces
from octavo.execution.quant.packing import HIGH_NIBBLE, LOW_NIBBLE, pack, unpack, unpack_q3_scales
from octavo.execution.quant.quantize import quantize
from octavo.execution.quant.types import TensorType

NATIVE_TYPES = frozenset(
    {
        TensorType.F32,
        TensorType.F16,
        TensorType.BF16,
        TensorType.Q4_0,
        TensorType.Q4_1,
        TensorType.Q5_0,
        TensorType.Q5_1,
        TensorType.Q8_0,
        TensorType.Q4_K,
        TensorType.Q5_K,
        TensorType.Q6_K,
    }
)
"""Formats that the native executor computes with as they are stored."""

Q8_0_MAX_ERROR = 1 / 254 + 2**-11
"""|w' - w| / max |w| in the block of 32: half a code, and the rounding of the float16 scale seen at the largest code.
Where that scale is subnormal (max |w| < 0.008), 127 * 2**-25 = 4e-6 absolute comes on top."""

_TARGETS = {
    TensorType.Q3_K: TensorType.Q6_K,
    TensorType.IQ4_NL: TensorType.Q8_0,
    TensorType.Q2_K: TensorType.Q8_0,
    TensorType.Z4: TensorType.F32,
    TensorType.S8: TensorType.F32,
    TensorType.F8: TensorType.F32,
}


def native_type(tensor_type: TensorType) -> TensorType:
    """The format in which a tensor of this format is computed with (itself where it is native)."""
    return _TARGETS.get(tensor_type, tensor_type)


def to_native(
    tensor_type: TensorType, raw: NDArray[np.uint8], shape: tuple[int, ...]
) -> tuple[TensorType, NDArray[np.uint8]]:
    """The tensor in a native format: `raw` itself where it is in one, else a converted copy (see the table above)."""
    if tensor_type in NATIVE_TYPES:
        return tensor_type, raw
    target = native_type(tensor_type)
    out = np.empty(target.num_bytes(shape), dtype=np.uint8)
    blocks = blocks_of(tensor_type, raw)
    converted = out.reshape(len(blocks), target.num_bytes((tensor_type.block_size,)))
    for piece in pieces(len(blocks), tensor_type.block_size):
        converted[piece] = _CONVERSIONS[tensor_type](blocks[piece]).view(np.uint8).reshape(-1, converted.shape[1])
    return target, out


def _q3_k_as_q6_k(b: NDArray[np.void]) -> NDArray[np.void]:
    codes = (q3_k_codes(b) + 32).astype(np.uint8)
    out = np.zeros(len(b), dtype=LAYOUTS[TensorType.Q6_K])
    out["d"] = b["d"]
    out["scales"] = unpack_q3_scales(b["scales"])
    out["ql"] = pack(codes & LOW_NIBBLE, 4, 64)
    out["qh"] = pack(codes >> HIGH_NIBBLE, 2, 32)
    return out


def _iq4_nl_as_q8_0(b: NDArray[np.void]) -> NDArray[np.void]:
    out = np.zeros(len(b), dtype=LAYOUTS[TensorType.Q8_0])
    out["d"] = b["d"]
    out["qs"] = IQ4_NL_VALUES[unpack(b["qs"], 4, 16)]
    return out


def _rounded_to_q8_0(tensor_type: TensorType) -> Callable[[NDArray[np.void]], NDArray[np.uint8]]:
    def convert(b: NDArray[np.void]) -> NDArray[np.uint8]:
        values = dequantize(tensor_type, b.view(np.uint8), (len(b), tensor_type.block_size))
        return quantize(TensorType.Q8_0, values)

    return convert


def _as_floats(tensor_type: TensorType) -> Callable[[NDArray[np.void]], NDArray[np.uint8]]:
    def convert(b: NDArray[np.void]) -> NDArray[np.uint8]:
        return dequantize(tensor_type, b.view(np.uint8), (len(b), tensor_type.block_size)).view(np.uint8)

    return convert


_CONVERSIONS: dict[TensorType, Callable[[NDArray[np.void]], NDArray[np.void] | NDArray[np.uint8]]] = {
    TensorType.Q3_K: _q3_k_as_q6_k,
    TensorType.IQ4_NL: _iq4_nl_as_q8_0,
    TensorType.Q2_K: _rounded_to_q8_0(TensorType.Q2_K),
    TensorType.Z4: _as_floats(TensorType.Z4),
    TensorType.S8: _as_floats(TensorType.S8),
    TensorType.F8: _as_floats(TensorType.F8),
}
