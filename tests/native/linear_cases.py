"""What the tests of the linear kernels share: random weights as file bytes, and the documented arithmetic in NumPy."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo._native import available_isas, linear
from octavo.execution.quant.dequantize import dequantize
from octavo.execution.quant.layout import LAYOUTS, blocks_of
from octavo.execution.quant.types import TensorType

Floats = NDArray[np.float32]

FLOAT_TYPES = (TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.F8)
GROUP_TYPES = (
    TensorType.Q4_0,
    TensorType.Q4_1,
    TensorType.Q5_0,
    TensorType.Q5_1,
    TensorType.Q8_0,
    TensorType.IQ4_NL,
    TensorType.MXFP4,
    TensorType.Z4,
    TensorType.S8,
)
SUPER_TYPES = (
    TensorType.Q2_K,
    TensorType.Q3_K,
    TensorType.Q4_K,
    TensorType.Q5_K,
    TensorType.Q6_K,
    TensorType.IQ4_XS,
)
INTEGER_TYPES = GROUP_TYPES + SUPER_TYPES
ALL_TYPES = FLOAT_TYPES + INTEGER_TYPES
GROUP = 32
UNSIGNED_ZERO = {TensorType.Q4_0: 8, TensorType.Q5_0: 16}
"""Formats whose minimum is -zero * d."""


AVAILABLE_ISAS = tuple(available_isas())
ISAS = [
    pytest.param(isa, marks=pytest.mark.skipif(isa not in AVAILABLE_ISAS, reason=f"this processor lacks {isa}"))
    for isa in ("portable", "avx2", "avx512", "amx")
]
"""Every instruction set, as parameters of a test."""


@dataclass(frozen=True)
class Weight:
    """A random [n, k] weight as a file holds it, packed and as numbers."""

    tensor_type: TensorType
    n: int
    k: int
    raw: NDArray[np.uint8]
    packed: linear.PackedWeight
    values: Floats


def random_weight(tensor_type: TensorType, n: int, k: int, seed: int) -> Weight:
    raw = random_bytes(tensor_type, n, k, np.random.default_rng(seed))
    packed = linear.pack(tensor_type.ggml_id, raw, n, k)
    return Weight(tensor_type, n, k, raw, packed, dequantize(tensor_type, raw, (n, k)))


def random_bytes(tensor_type: TensorType, n: int, k: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Any bytes are codes, those of row 0 all the largest; scales are finite, a few zero, negative or subnormal."""
    if tensor_type.block_size == 1:
        return _float_bytes(tensor_type, rng.standard_normal(n * k).astype(np.float32))
    raw = rng.integers(0, 256, tensor_type.num_bytes((n, k)), dtype=np.uint8)
    raw[: tensor_type.num_bytes((1, k))] = 0x7F if tensor_type in (TensorType.Q8_0, TensorType.S8) else 0xFF
    blocks = blocks_of(tensor_type, raw)
    for field in ("d", "m", "dmin"):
        if field in (LAYOUTS[tensor_type].names or ()):
            scales = rng.normal(0, 0.02, len(blocks)).astype(LAYOUTS[tensor_type][field])
            scales[rng.random(len(blocks)) < 0.02] = 0
            scales[rng.random(len(blocks)) < 0.02] = np.float16(3e-6)
            blocks[field] = scales
    if tensor_type is TensorType.F8:
        blocks["qs"][blocks["qs"] & 0x7F == 0x7F] = 0x07  # NaN; this one is subnormal
    if tensor_type is TensorType.MXFP4:
        blocks["e"] = rng.choice([0, 1, 2, 110, 118, 121, 122, 123, 124, 130], len(blocks))
    return raw


def _float_bytes(tensor_type: TensorType, values: Floats) -> NDArray[np.uint8]:
    if tensor_type is TensorType.F32:
        return values.view(np.uint8)
    if tensor_type is TensorType.F16:
        return values.astype(np.float16).view(np.uint8)
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def random_rows(rows: int, k: int, seed: int) -> Floats:
    """Activations of very different sizes, some groups zero, some at the edge of the int8 range."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k)) * np.exp(rng.normal(0, 1, (rows, k)))
    x[rng.random((rows, k)) < 0.05] = 0
    x[:, : GROUP // 2] *= rng.random((rows, 1)) > 0.3
    x[rows // 2, : k // 2] = 1.0  # every code 127: the largest exact sums
    return x.astype(np.float32)


def run(weight: Weight, x: Floats, isa: str, **options: object) -> Floats:
    """x W^T of all outputs, on an output that holds NaN where nothing is written."""
    y = np.full((len(x), weight.n), np.nan, np.float32)
    linear.run(weight.packed, x, y, isa=isa, **options)
    return y


def same_bits(a: Floats, b: Floats) -> bool:
    return a.shape == b.shape and bool((a.view(np.uint32) == b.view(np.uint32)).all())


def fma32(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c with one rounding. The double sum is rounded to odd, so that the step to float32 rounds correctly."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    even = total.view(np.uint64) & np.uint64(1) == 0
    toward = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, toward, total).astype(np.float32)
