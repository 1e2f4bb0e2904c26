"""float32 -> stored bytes: plain round-to-nearest versions, for conversions at load and for test models.

Each block's (or group's) scale comes from its extremes, as in ggml's reference for the 32-blocks. ggml's search for
better K-quant scales is left out, so K-quants written here are valid and close, not ggml's bytes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.e4m3 import E4M3_MAX, nearest_e4m3
from octavo.execution.quant.layout import IQ4_NL_VALUES, LAYOUTS, pieces
from octavo.execution.quant.packing import (
    HIGH_NIBBLE,
    LOW_NIBBLE,
    pack,
    pack_bit_per_weight,
    pack_q3_scales,
    pack_scales_and_mins,
)
from octavo.execution.quant.types import TensorType

Blocks = NDArray[np.void]
Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]


def quantize(tensor_type: TensorType, values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bytes of `values` in `tensor_type`, flat. Values must be finite and fit the format's float16 scales.

    Raises ValueError for rows that are not whole blocks.
    """
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


def _bf16(values: Floats) -> NDArray[np.uint16]:
    """Round to nearest even on the bits; NaN keeps its quiet bit."""
    bits = values.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).astype(np.uint16)


def _reciprocal(scale: Floats) -> Floats:
    """1 / scale, and 0 where the scale is 0 (a block of zeros)."""
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def _signed_extreme(x: Floats) -> Floats:
    """`[..., n]` -> `[..., 1]`: the value of largest magnitude, with its sign."""
    extreme: Floats = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)
    return extreme


def _codes(x: Floats, scale: Floats, offset: int, top: int) -> Codes:
    """Codes `x / scale + offset` rounded half up and clipped to 0..top."""
    rounded = np.floor(x * _reciprocal(scale) + np.float32(offset + 0.5))
    codes: Codes = np.clip(rounded, 0, top).astype(np.uint8)
    return codes


def _q4_0(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(-8)
    out["d"] = d[:, 0]
    out["qs"] = pack(_codes(x, d, 8, 15), 4, 16)


def _with_minimum(x: Floats, out: Blocks, top: int) -> Codes:
    """Codes 0..top between the block's minimum and maximum."""
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(top)
    out["d"], out["m"] = d[:, 0], low[:, 0]
    return _codes(x - low, d, 0, top)


def _q4_1(x: Floats, out: Blocks) -> None:
    out["qs"] = pack(_with_minimum(x, out, 15), 4, 16)


def _pack_five_bits(q: Codes, out: Blocks) -> None:
    out["qh"] = pack_bit_per_weight(q >> HIGH_NIBBLE)
    out["qs"] = pack(q & LOW_NIBBLE, 4, 16)


def _q5_0(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(-16)
    out["d"] = d[:, 0]
    _pack_five_bits(_codes(x, d, 16, 31), out)


def _q5_1(x: Floats, out: Blocks) -> None:
    _pack_five_bits(_with_minimum(x, out, 31), out)


def _z4(x: Floats, out: Blocks) -> None:
    """Zero is a code of its own: the range is stretched to hold it."""
    low = np.minimum(x.min(axis=1, keepdims=True), np.float32(0))
    d = _float16((np.maximum(x.max(axis=1, keepdims=True), np.float32(0)) - low) / np.float32(15))
    zero = _codes(-low, d, 0, 15)
    out["d"], out["zero"] = d[:, 0], zero[:, 0]
    out["qs"] = pack(_codes(x + d * zero, d, 0, 15), 4, 16)


def _f8(x: Floats, out: Blocks) -> None:
    d = np.abs(x).max(axis=1, keepdims=True) / E4M3_MAX
    out["d"] = d[:, 0]
    out["qs"] = nearest_e4m3(x * _reciprocal(d))


def _q8_0(x: Floats, out: Blocks) -> None:
    """Also S8: their scales differ in width only."""
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scaled = x * _reciprocal(d)
    out["d"] = d[:, 0]
    out["qs"] = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)


def _iq4_nl(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(IQ4_NL_VALUES[0])
    boundaries = (IQ4_NL_VALUES[1:].astype(np.float32) + IQ4_NL_VALUES[:-1]) / 2
    out["d"] = d[:, 0]
    out["qs"] = pack(np.searchsorted(boundaries, x * _reciprocal(d)).astype(np.uint8), 4, 16)


def _multiples(values: Floats, top: int) -> tuple[Floats, Codes]:
    """`[n, groups]` non-negative -> a float16 step `[n, 1]` (as float32) and each value as its multiple 0..top."""
    step = _float16(values.max(axis=1, keepdims=True) / np.float32(top))
    return step, _codes(values, step, 0, top)


def _float16(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def _grouped_with_minimum(x: Floats, out: Blocks, groups: int, top: int, scale_top: int) -> tuple[Codes, Codes, Codes]:
    """Codes `[n, 256]` 0..top, scales and offsets `[n, groups]` 0..scale_top, and the block's two float16 steps."""
    grouped = x.reshape(len(x), groups, -1)
    low = np.maximum(-grouped.min(axis=2), np.float32(0))
    d, scales = _multiples(np.maximum(grouped.max(axis=2) + low, 0) / np.float32(top), scale_top)
    dmin, mins = _multiples(low, scale_top)
    codes = _codes(grouped + (dmin * mins)[..., None], (d * scales)[..., None], 0, top)
    out["d"], out["dmin"] = d[:, 0], dmin[:, 0]
    return codes.reshape(len(x), 256), scales, mins


def _q2_k(x: Floats, out: Blocks) -> None:
    codes, scales, mins = _grouped_with_minimum(x, out, 16, 3, 15)
    out["scales"] = scales | (mins << HIGH_NIBBLE)
    out["qs"] = pack(codes, 2, 32)


def _q4_k(x: Floats, out: Blocks) -> None:
    codes, scales, mins = _grouped_with_minimum(x, out, 8, 15, 63)
    out["scales"] = pack_scales_and_mins(scales, mins)
    out["qs"] = pack(codes, 4, 32)


def _q5_k(x: Floats, out: Blocks) -> None:
    codes, scales, mins = _grouped_with_minimum(x, out, 8, 31, 63)
    out["scales"] = pack_scales_and_mins(scales, mins)
    out["qs"] = pack(codes & LOW_NIBBLE, 4, 32)
    out["qh"] = pack(codes >> HIGH_NIBBLE, 1, 32)


def _grouped_signed(x: Floats, out: Blocks, code_top: int, scale_top: int) -> tuple[Codes, NDArray[np.int8]]:
    """Codes `[n, 256]` 0..2 * code_top - 1 around code_top, and signed scales `[n, 16]` of magnitude <= scale_top."""
    grouped = x.reshape(len(x), 16, 16)
    ideal = _signed_extreme(grouped)[..., 0] / np.float32(-code_top)
    d = _float16(np.abs(ideal).max(axis=1, keepdims=True) / np.float32(scale_top))
    scales = np.clip(np.rint(ideal * _reciprocal(d)), -scale_top, scale_top).astype(np.int8)
    codes = _codes(grouped, (d * scales)[..., None], code_top, 2 * code_top - 1)
    out["d"] = d[:, 0]
    return codes.reshape(len(x), 256), scales


def _q3_k(x: Floats, out: Blocks) -> None:
    codes, scales = _grouped_signed(x, out, 4, 31)
    out["scales"] = pack_q3_scales(scales)
    out["qs"] = pack(codes & np.uint8(3), 2, 32)
    out["qh"] = pack(codes >> np.uint8(2), 1, 32)


def _q6_k(x: Floats, out: Blocks) -> None:
    codes, out["scales"] = _grouped_signed(x, out, 32, 127)
    out["ql"] = pack(codes & LOW_NIBBLE, 4, 64)
    out["qh"] = pack(codes >> HIGH_NIBBLE, 2, 32)


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
    TensorType.Z4: _z4,
    TensorType.S8: _q8_0,
    TensorType.F8: _f8,
}
