"""float32 -> stored bytes: plain round-to-nearest versions, for conversions at load and for test models.

Each block's (or group's) scale comes from its extremes, as in ggml's reference for the 32-blocks. `fit` looks for
better ones.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.codes import (
    Blocks,
    Codes,
    Floats,
    codes_of,
    fill_q2_k,
    fill_q3_k,
    fill_q4,
    fill_q4_k,
    fill_q5,
    fill_q5_k,
    fill_q6_k,
    float16,
    reciprocal,
    table_codes,
)
from octavo.execution.quant.dequantize import half_power
from octavo.execution.quant.e4m3 import E4M3_MAX, nearest_e4m3
from octavo.execution.quant.layout import IQ4_NL_VALUES, LAYOUTS, MXFP4_VALUES, pieces
from octavo.execution.quant.types import TensorType


def quantize(tensor_type: TensorType, values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bytes of `values` in `tensor_type`, flat. Values must be finite and fit the format's float16 scales.

    Raises ValueError for rows that are not whole blocks, and for a format that is read only (not in `WRITABLE_TYPES`).
    """
    if tensor_type not in WRITABLE_TYPES:
        raise ValueError(f"{tensor_type.name} is read, not written; take one of {', '.join(_names(WRITABLE_TYPES))}")
    tensor_type.num_bytes(values.shape)
    values = np.ascontiguousarray(values, dtype=np.float32)
    if tensor_type in _FLOATS:
        floats: NDArray[np.generic] = _FLOATS[tensor_type](values)
        return np.frombuffer(floats.tobytes(), dtype=np.uint8)
    x = values.reshape(-1, tensor_type.block_size)
    blocks = np.zeros(len(x), dtype=LAYOUTS[tensor_type])
    for piece in pieces(len(x), tensor_type.block_size):
        _BLOCK_ENCODERS[tensor_type](x[piece], blocks[piece])
    return blocks.view(np.uint8).reshape(-1)


def _names(types: Iterable[TensorType]) -> list[str]:
    return sorted(t.name for t in types)


def _bf16(values: Floats) -> NDArray[np.uint16]:
    """Round to nearest even on the bits; NaN keeps its quiet bit."""
    bits = values.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).astype(np.uint16)


def _signed_extreme(x: Floats) -> Floats:
    """`[..., n]` -> `[..., 1]`: the value of largest magnitude, with its sign."""
    extreme: Floats = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)
    return extreme


def _q4_0(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(-8)
    out["d"] = d[:, 0]
    fill_q4(out, codes_of(x, d, 8, 15))


def _with_minimum(x: Floats, out: Blocks, top: int) -> Codes:
    """Codes 0..top between the block's minimum and maximum."""
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(top)
    out["d"], out["m"] = d[:, 0], low[:, 0]
    return codes_of(x - low, d, 0, top)


def _q4_1(x: Floats, out: Blocks) -> None:
    fill_q4(out, _with_minimum(x, out, 15))


def _q5_0(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(-16)
    out["d"] = d[:, 0]
    fill_q5(out, codes_of(x, d, 16, 31))


def _q5_1(x: Floats, out: Blocks) -> None:
    fill_q5(out, _with_minimum(x, out, 31))


def _z4(x: Floats, out: Blocks) -> None:
    """Zero is a code of its own: the range is stretched to hold it."""
    low = np.minimum(x.min(axis=1, keepdims=True), np.float32(0))
    d = float16((np.maximum(x.max(axis=1, keepdims=True), np.float32(0)) - low) / np.float32(15))
    zero = codes_of(-low, d, 0, 15)
    out["d"], out["zero"] = d[:, 0], zero[:, 0]
    fill_q4(out, codes_of(x + d * zero, d, 0, 15))


def _f8(x: Floats, out: Blocks) -> None:
    d = np.abs(x).max(axis=1, keepdims=True) / E4M3_MAX
    out["d"] = d[:, 0]
    out["qs"] = nearest_e4m3(x * reciprocal(d))


def _q8_0(x: Floats, out: Blocks) -> None:
    """Also S8: their scales differ in width only."""
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scaled = x * reciprocal(d)
    out["d"] = d[:, 0]
    out["qs"] = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)


def _iq4_nl(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(IQ4_NL_VALUES[0])
    out["d"] = d[:, 0]
    fill_q4(out, table_codes(x, d))


def _iq4_xs(x: Floats, out: Blocks) -> None:
    """Six bits of scale: a nibble, and a pair of bits in a word that holds those of all groups."""
    grouped = x.reshape(len(x), 8, 32)
    ideal = _signed_extreme(grouped)[..., 0] / np.float32(IQ4_NL_VALUES[0])
    d = float16(np.abs(ideal).max(axis=1, keepdims=True) / np.float32(31))
    scales = np.rint(ideal * reciprocal(d))
    six = (np.clip(scales, -32, 31) + 32).astype(np.uint8)
    out["d"] = d[:, 0]
    out["scales_l"] = (six[:, ::2] & 15) | (six[:, 1::2] & 15) << 4
    out["scales_h"] = ((six >> 4).astype(np.uint16) << 2 * np.arange(8, dtype=np.uint16)).sum(axis=1)
    fill_q4(out, table_codes(grouped, (d * scales)[..., None]).reshape(x.shape))


def _mxfp4(x: Floats, out: Blocks) -> None:
    """The power of two that the specification names: that of the largest magnitude, over e2m1's largest (4)."""
    largest = np.abs(x).max(axis=1)
    out["e"] = np.where(largest > 0, np.clip(np.frexp(largest)[1] - 1 - 2 + 127, 0, 254), 0)
    scaled = np.abs(x / half_power(out["e"])[:, None])
    boundaries = (MXFP4_VALUES[1:8].astype(np.float32) + MXFP4_VALUES[:7]) / 2
    codes = np.searchsorted(boundaries, scaled) | np.signbit(x) << 3
    fill_q4(out, codes.astype(np.uint8))


def _multiples(values: Floats, top: int) -> tuple[Floats, Codes]:
    """`[n, groups]` non-negative -> a float16 step `[n, 1]` (as float32) and each value as its multiple 0..top."""
    step = float16(values.max(axis=1, keepdims=True) / np.float32(top))
    return step, codes_of(values, step, 0, top)


def _grouped_with_minimum(x: Floats, out: Blocks, groups: int, top: int, scale_top: int) -> tuple[Codes, Codes, Codes]:
    """Codes `[n, 256]` 0..top, scales and offsets `[n, groups]` 0..scale_top, and the block's two float16 steps."""
    grouped = x.reshape(len(x), groups, -1)
    low = np.maximum(-grouped.min(axis=2), np.float32(0))
    d, scales = _multiples(np.maximum(grouped.max(axis=2) + low, 0) / np.float32(top), scale_top)
    dmin, mins = _multiples(low, scale_top)
    codes = codes_of(grouped + (dmin * mins)[..., None], (d * scales)[..., None], 0, top)
    out["d"], out["dmin"] = d[:, 0], dmin[:, 0]
    return codes.reshape(len(x), 256), scales, mins


def _q2_k(x: Floats, out: Blocks) -> None:
    fill_q2_k(out, *_grouped_with_minimum(x, out, 16, 3, 15))


def _q4_k(x: Floats, out: Blocks) -> None:
    fill_q4_k(out, *_grouped_with_minimum(x, out, 8, 15, 63))


def _q5_k(x: Floats, out: Blocks) -> None:
    fill_q5_k(out, *_grouped_with_minimum(x, out, 8, 31, 63))


def _grouped_signed(x: Floats, out: Blocks, code_top: int, scale_top: int) -> tuple[Codes, NDArray[np.int8]]:
    """Codes `[n, 256]` 0..2 * code_top - 1 around code_top, and signed scales `[n, 16]` of magnitude <= scale_top."""
    grouped = x.reshape(len(x), 16, 16)
    ideal = _signed_extreme(grouped)[..., 0] / np.float32(-code_top)
    d = float16(np.abs(ideal).max(axis=1, keepdims=True) / np.float32(scale_top))
    scales = np.clip(np.rint(ideal * reciprocal(d)), -scale_top, scale_top).astype(np.int8)
    codes = codes_of(grouped, (d * scales)[..., None], code_top, 2 * code_top - 1)
    out["d"] = d[:, 0]
    return codes.reshape(len(x), 256), scales


def _q3_k(x: Floats, out: Blocks) -> None:
    fill_q3_k(out, *_grouped_signed(x, out, 4, 31))


def _q6_k(x: Floats, out: Blocks) -> None:
    fill_q6_k(out, *_grouped_signed(x, out, 32, 127))


_FLOATS: dict[TensorType, Callable[[Floats], NDArray[np.generic]]] = {
    TensorType.F32: lambda values: values.astype("<f4"),
    TensorType.F16: lambda values: values.astype("<f2"),
    TensorType.BF16: lambda values: _bf16(values).astype("<u2"),
}
_BLOCK_ENCODERS: dict[TensorType, Callable[[Floats, Blocks], None]] = {
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q2_K: _q2_k,
    TensorType.Q3_K: _q3_k,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
    TensorType.IQ4_NL: _iq4_nl,
    TensorType.IQ4_XS: _iq4_xs,
    TensorType.MXFP4: _mxfp4,
    TensorType.Z4: _z4,
    TensorType.S8: _q8_0,
    TensorType.F8: _f8,
}

WRITABLE_TYPES = frozenset(_FLOATS) | frozenset(_BLOCK_ENCODERS)
"""All but the TQ formats and the IQ formats with a grid: those want a search over it to be worth their bits."""
