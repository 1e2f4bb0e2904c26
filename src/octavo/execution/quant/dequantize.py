"""Stored bytes -> float32, exactly as ggml's reference does it (same products, same order, hence the same bits)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.e4m3 import E4M3_VALUES
from octavo.execution.quant.layout import IQ4_NL_VALUES, MXFP4_VALUES, blocks_of, pieces
from octavo.execution.quant.multiples import MULTIPLES_TYPES, read_multiples
from octavo.execution.quant.packing import (
    HIGH_NIBBLE,
    LOW_NIBBLE,
    unpack,
    unpack_bit_per_weight,
    unpack_q3_scales,
    unpack_scales_and_mins,
)
from octavo.execution.quant.types import TensorType

Blocks = NDArray[np.void]
Floats = NDArray[np.float32]


def dequantize(tensor_type: TensorType, raw: NDArray[np.uint8], shape: tuple[int, ...]) -> Floats:
    """The tensor as float32 of `shape`; `raw` holds its bytes.

    Raises ValueError where `raw` is not as long as type and shape say.
    """
    raw = _checked(tensor_type, raw, shape)
    if tensor_type in _FLOATS:
        return _FLOATS[tensor_type](raw).reshape(shape)
    blocks = blocks_of(tensor_type, raw)
    out = np.empty((len(blocks), tensor_type.block_size), dtype=np.float32)
    for piece in pieces(len(blocks), tensor_type.block_size):
        out[piece] = _decoded(tensor_type, blocks[piece])
    return out.reshape(shape)


def _decoded(tensor_type: TensorType, blocks: Blocks) -> Floats:
    if tensor_type in MULTIPLES_TYPES:
        return read_multiples(tensor_type, blocks).values()
    return _BLOCK_DECODERS[tensor_type](blocks)


def _checked(tensor_type: TensorType, raw: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    expected = tensor_type.num_bytes(shape)
    if raw.dtype != np.uint8 or raw.size != expected:
        raise ValueError(f"{tensor_type.name} of shape {shape} is {expected} bytes, got {raw.size} of {raw.dtype}")
    return np.ascontiguousarray(raw).reshape(-1)


def _f32(raw: NDArray[np.uint8]) -> Floats:
    return raw.view("<f4").astype(np.float32)


def _f16(raw: NDArray[np.uint8]) -> Floats:
    return raw.view("<f2").astype(np.float32)


def _bf16(raw: NDArray[np.uint8]) -> Floats:
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _column(values: NDArray[np.generic]) -> Floats:
    """One float32 per block as a column that multiplies the block's weights."""
    return values.astype(np.float32)[:, None]


def _q4_0(b: Blocks) -> Floats:
    q = unpack(b["qs"], 4, 16).astype(np.int8) - np.int8(8)
    return _column(b["d"]) * q.astype(np.float32)


def _q4_1(b: Blocks) -> Floats:
    return _column(b["d"]) * unpack(b["qs"], 4, 16).astype(np.float32) + _column(b["m"])


def _five_bit_codes(b: Blocks) -> NDArray[np.uint8]:
    return unpack(b["qs"], 4, 16) | (unpack_bit_per_weight(b["qh"]) << HIGH_NIBBLE)


def _q5_0(b: Blocks) -> Floats:
    q = _five_bit_codes(b).astype(np.int8) - np.int8(16)
    return _column(b["d"]) * q.astype(np.float32)


def _q5_1(b: Blocks) -> Floats:
    return _column(b["d"]) * _five_bit_codes(b).astype(np.float32) + _column(b["m"])


def _q8_0(b: Blocks) -> Floats:
    """Also S8: their scales differ in width only."""
    return _column(b["d"]) * b["qs"].astype(np.float32)


def _iq4_nl(b: Blocks) -> Floats:
    return _column(b["d"]) * IQ4_NL_VALUES[unpack(b["qs"], 4, 16)].astype(np.float32)


def half_power(e: NDArray[np.uint8]) -> Floats:
    """An e8m0 scale, halved: 2 ** (e - 128). Its smallest two are subnormal."""
    bits = np.where(e < 2, np.uint32(0x00200000) << e, (e.astype(np.uint32) - 1) << 23)
    return bits.astype(np.uint32).view(np.float32)


def _mxfp4(b: Blocks) -> Floats:
    return half_power(b["e"])[:, None] * MXFP4_VALUES[unpack(b["qs"], 4, 16)].astype(np.float32)


def _z4(b: Blocks) -> Floats:
    q = unpack(b["qs"], 4, 16).astype(np.int16) - b["zero"].astype(np.int16)[:, None]
    return _column(b["d"]) * q.astype(np.float32)


def _f8(b: Blocks) -> Floats:
    """A number that is NaN makes its block NaN, as the kernels have it: no product with the block is anything else."""
    numbers: Floats = E4M3_VALUES[b["qs"]]
    broken = np.isnan(numbers).any(axis=1, keepdims=True)
    return np.where(broken, np.float32(np.nan), _column(b["d"]) * numbers)


def _grouped(codes: NDArray[np.generic], scales: Floats) -> Floats:
    """codes `[n, 256]` as float32 `[n, groups, 256 / groups]`, to be scaled by `[n, groups]` scales."""
    return codes.astype(np.float32).reshape(*scales.shape, -1)


def _q2_k(b: Blocks) -> Floats:
    scale = _column(b["d"]) * (b["scales"] & LOW_NIBBLE).astype(np.float32)
    offset = _column(b["dmin"]) * (b["scales"] >> HIGH_NIBBLE).astype(np.float32)
    q = _grouped(unpack(b["qs"], 2, 32), scale)
    return (scale[..., None] * q - offset[..., None]).reshape(len(b), 256)


def q3_k_codes(b: Blocks) -> NDArray[np.int8]:
    """`[n, 256]` codes -4..3. The high bit is stored inverted: set means "do not subtract four"."""
    low = unpack(b["qs"], 2, 32).astype(np.int8)
    high = unpack(b["qh"], 1, 32).astype(np.int8)
    return low - ((1 - high) << 2)


def _q3_k(b: Blocks) -> Floats:
    scale = _column(b["d"]) * unpack_q3_scales(b["scales"]).astype(np.float32)
    return (scale[..., None] * _grouped(q3_k_codes(b), scale)).reshape(len(b), 256)


def _scaled_with_min(b: Blocks, codes: NDArray[np.uint8]) -> Floats:
    """Q4_K and Q5_K: eight groups of 32, each with a scale and an offset of six bits."""
    scales, mins = unpack_scales_and_mins(b["scales"])
    scale = _column(b["d"]) * scales.astype(np.float32)
    offset = _column(b["dmin"]) * mins.astype(np.float32)
    return (scale[..., None] * _grouped(codes, scale) - offset[..., None]).reshape(len(b), 256)


def _q4_k(b: Blocks) -> Floats:
    return _scaled_with_min(b, unpack(b["qs"], 4, 32))


def _q5_k(b: Blocks) -> Floats:
    return _scaled_with_min(b, unpack(b["qs"], 4, 32) | (unpack(b["qh"], 1, 32) << HIGH_NIBBLE))


def _q6_k(b: Blocks) -> Floats:
    q = (unpack(b["ql"], 4, 64) | (unpack(b["qh"], 2, 32) << HIGH_NIBBLE)).astype(np.int8) - np.int8(32)
    scale = _column(b["d"]) * b["scales"].astype(np.float32)
    return (scale[..., None] * _grouped(q, scale)).reshape(len(b), 256)


_FLOATS: dict[TensorType, Callable[[NDArray[np.uint8]], Floats]] = {
    TensorType.F32: _f32,
    TensorType.F16: _f16,
    TensorType.BF16: _bf16,
}
_BLOCK_DECODERS: dict[TensorType, Callable[[Blocks], Floats]] = {
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
    TensorType.MXFP4: _mxfp4,
    TensorType.Z4: _z4,
    TensorType.S8: _q8_0,
    TensorType.F8: _f8,
}
