"""The bytes of a cached vector, that is K or V of one token and KV head, in each number format."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.execution.protocols import Float32
from octavo.execution.quant import TensorType, dequantize, quantize
from octavo.execution.quant.e4m3 import E4M3_VALUES, nearest_e4m3
from octavo.kv.spec import KVDtype

Bytes = npt.NDArray[np.uint8]

_SMALLEST = np.float32(2.0**-119)
"""Vectors whose largest magnitude lies below are zero: the inverse of their scale would overflow."""


class VectorFormat(Protocol):
    """A number format of vectors."""

    def encode(self, vectors: Float32) -> Bytes:
        """Vectors `[..., n]` as bytes `[..., KVDtype.vector_bytes(n)]`."""
        ...

    def decode(self, raw: Bytes) -> Float32:
        """The values that are left of the vectors, `[..., n]`."""
        ...


@dataclass(frozen=True)
class _Floats:
    """Each number for itself."""

    type: TensorType

    def encode(self, vectors: Float32) -> Bytes:
        return quantize(self.type, vectors).reshape(*vectors.shape[:-1], -1)

    def decode(self, raw: Bytes) -> Float32:
        shape = (*raw.shape[:-1], raw.shape[-1] // self.type.block_bytes)
        return dequantize(self.type, np.ascontiguousarray(raw).reshape(-1), shape)


@dataclass(frozen=True)
class _Codes:
    """One code per number, then the vector's scale: max|x| / the largest code, as a float32.

    A code is x * (largest code / max|x|), rounded. A vector with an infinity or a NaN has a NaN as its scale.
    """

    round: Callable[[Float32], Bytes]
    """Numbers to codes."""
    values: Float32
    """`[256]` code -> number."""

    def encode(self, vectors: Float32) -> Bytes:
        largest_code = np.nanmax(self.values)
        largest = np.abs(vectors).max(axis=-1, keepdims=True)
        finite = np.isfinite(largest)
        some = finite & (largest >= _SMALLEST)
        scale = np.where(some, largest / largest_code, np.where(finite, 0, np.float32(np.nan))).astype(np.float32)
        inverse = np.divide(largest_code, largest, out=np.zeros_like(largest), where=some)
        codes = self.round(np.where(finite, vectors, 0) * inverse)
        return np.concatenate([codes, scale.view(np.uint8)], axis=-1)

    def decode(self, raw: Bytes) -> Float32:
        scale = np.ascontiguousarray(raw[..., -4:]).view(np.float32)
        values: Float32 = self.values[raw[..., :-4]] * scale
        return values


def _int8(numbers: Float32) -> Bytes:
    return np.rint(numbers).astype(np.int8).view(np.uint8)


_E4M3_UNIT = np.float32(2.0**-8)
"""What 1.0 as e4m3 counts for, as csrc/base/codes.h reads it."""
_INT8_VALUES = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
_INT8_VALUES[128] = np.nan  # -128 is no code


def _e4m3(numbers: Float32) -> Bytes:
    return nearest_e4m3(numbers / _E4M3_UNIT)


FORMATS: dict[KVDtype, VectorFormat] = {
    KVDtype.FP32: _Floats(TensorType.F32),
    KVDtype.FP16: _Floats(TensorType.F16),
    KVDtype.BF16: _Floats(TensorType.BF16),
    KVDtype.INT8: _Codes(_int8, _INT8_VALUES),
    KVDtype.FP8: _Codes(_e4m3, E4M3_VALUES * _E4M3_UNIT),
}
