"""float32 -> stored bytes: plain round-to-nearest versions, for conversions at load and for test models.

They choose each block's scale from its extremes, as ggml's reference does for the 32-blocks; ggml's search for better
K-quant scales is left out, so Q4_K and Q6_K written here are valid and close, not ggml's bytes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.layout import LAYOUTS
from octavo.execution.quant.packing import HIGH_NIBBLE, LOW_NIBBLE, pack, pack_bit_per_weight, pack_scales_and_mins
from octavo.execution.quant.types import TensorType

Blocks = NDArray[np.void]
Floats = NDArray[np.float32]


def quantize(tensor_type: TensorType, values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bytes of `values` in `tensor_type`, flat. Values must be finite and fit the format's float16 scales.

    Raises ValueError for a format that is only read (Q5_1, Q2_K, Q3_K, Q5_K, IQ4_NL) or rows that are not whole blocks.
    """
    tensor_type.num_bytes(values.shape)
    values = np.ascontiguousarray(values, dtype=np.float32)
    if tensor_type in _FLOATS:
        floats: NDArray[np.generic] = _FLOATS[tensor_type](values)
        return np.frombuffer(floats.tobytes(), dtype=np.uint8)
    if tensor_type not in _BLOCK_ENCODERS:
        known = ", ".join(t.name for t in (*_FLOATS, *_BLOCK_ENCODERS))
        raise ValueError(f"cannot write {tensor_type.name}; written formats: {known}")
    x = values.reshape(-1, tensor_type.block_size)
    blocks = np.zeros(len(x), dtype=LAYOUTS[tensor_type])
    _BLOCK_ENCODERS[tensor_type](x, blocks)
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
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)


def _codes(x: Floats, scale: Floats, offset: int, top: int) -> NDArray[np.uint8]:
    """Codes `x / scale + offset` rounded half up and clipped to 0..top."""
    return np.clip(np.floor(x * _reciprocal(scale) + np.float32(offset + 0.5)), 0, top).astype(np.uint8)


def _q4_0(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(-8)
    out["d"] = d[:, 0]
    out["qs"] = pack(_codes(x, d, 8, 15), 4, 16)


def _q4_1(x: Floats, out: Blocks) -> None:
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(15)
    out["d"], out["m"] = d[:, 0], low[:, 0]
    out["qs"] = pack(_codes(x - low, d, 0, 15), 4, 16)


def _q5_0(x: Floats, out: Blocks) -> None:
    d = _signed_extreme(x) / np.float32(-16)
    q = _codes(x, d, 16, 31)
    out["d"] = d[:, 0]
    out["qh"] = pack_bit_per_weight(q >> HIGH_NIBBLE)
    out["qs"] = pack(q & LOW_NIBBLE, 4, 16)


def _q8_0(x: Floats, out: Blocks) -> None:
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scaled = x * _reciprocal(d)
    out["d"] = d[:, 0]
    out["qs"] = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)


def _six_bit(values: Floats) -> tuple[Floats, NDArray[np.uint8]]:
    """`[n, 8]` non-negative -> the float16 step `[n, 1]` (as float32) and its multiples 0..63."""
    step = (values.max(axis=1, keepdims=True) / np.float32(63)).astype(np.float16).astype(np.float32)
    return step, _codes(values, step, 0, 63)


def _q4_k(x: Floats, out: Blocks) -> None:
    groups = x.reshape(-1, 8, 32)
    low = np.maximum(-groups.min(axis=2), 0)
    d, scales = _six_bit((groups.max(axis=2) + low) / np.float32(15))
    dmin, mins = _six_bit(low)
    shifted = groups + (dmin * mins)[..., None]
    codes = _codes(shifted, (d * scales)[..., None], 0, 15)
    out["d"], out["dmin"] = d[:, 0], dmin[:, 0]
    out["scales"] = pack_scales_and_mins(scales, mins)
    out["qs"] = pack(codes.reshape(-1, 256), 4, 32)


def _q6_k(x: Floats, out: Blocks) -> None:
    groups = x.reshape(-1, 16, 16)
    ideal = _signed_extreme(groups)[..., 0] / np.float32(-32)
    d = (np.abs(ideal).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float16).astype(np.float32)
    scales = np.clip(np.rint(ideal * _reciprocal(d)), -128, 127)
    codes = _codes(groups, (d * scales)[..., None], 32, 63).reshape(-1, 256)
    out["d"], out["scales"] = d[:, 0], scales
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
    TensorType.Q8_0: _q8_0,
    TensorType.Q4_K: _q4_k,
    TensorType.Q6_K: _q6_k,
}
