"""float32 -> stored bytes with scales that are looked for: the codes a file is written with.

Rounding to the scale that a block's extremes give wastes codes: a scale that clips the largest weights, or leaves the
largest code unused, often says the block better. `csrc/quant` tries a few dozen scales per block, takes for each the
scale that is best for the codes it led to (least squares), polishes the best one, and for K-quants goes on to choose
the steps of a super-block and their multiples in turns. The error that counts is the plain squared error of the
weights.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from octavo import _native
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
    table_codes,
)
from octavo.execution.quant.layout import LAYOUTS, pieces
from octavo.execution.quant.quantize import quantize
from octavo.execution.quant.types import TensorType

FIT_VERSION = 1
"""Goes up whenever the same weights get other bytes: models that are quantised as they load then compute other bits."""


def fit(tensor_type: TensorType, values: NDArray[np.float32], *, isa: str = "auto") -> NDArray[np.uint8]:
    """The bytes of `values` in `tensor_type`, flat; a block's bytes depend on its own weights alone.

    Types for which rounding leaves nothing to gain (floats, Q8_0) are rounded as `quantize` rounds.

    Args:
        values: finite, and within what float16 scales reach.
        isa: kernel path; all give the same bytes.

    Raises:
        ValueError: rows are not whole blocks.
    """
    encode = _ENCODERS.get(tensor_type)
    if encode is None:
        return quantize(tensor_type, values)
    tensor_type.num_bytes(values.shape)
    x = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, tensor_type.block_size)
    blocks = np.zeros(len(x), dtype=LAYOUTS[tensor_type])
    for piece in pieces(len(x), tensor_type.block_size):
        encode(tensor_type, x[piece], blocks[piece], isa)
    return blocks.view(np.uint8).reshape(-1)


def _fit_32(tensor_type: TensorType, x: Floats, out: Blocks, isa: str) -> tuple[Floats, Floats]:
    """Scales and offsets `[n, 1]` as they are stored; offsets are 0 where the format has none."""
    d, m = _native.fit_groups(tensor_type.name, x, isa)
    out["d"] = d
    if "m" in (out.dtype.names or ()):
        out["m"] = m
    return float16(d)[:, None], float16(m)[:, None]


def _symmetric(
    offset: int, fill: Callable[[Blocks, Codes], None], tensor_type: TensorType, x: Floats, out: Blocks, isa: str
) -> None:
    d, _ = _fit_32(tensor_type, x, out, isa)
    fill(out, codes_of(x, d, offset, 2 * offset - 1))


def _with_offset(
    top: int, fill: Callable[[Blocks, Codes], None], tensor_type: TensorType, x: Floats, out: Blocks, isa: str
) -> None:
    d, m = _fit_32(tensor_type, x, out, isa)
    fill(out, codes_of(x - m, d, 0, top))


def _from_table(tensor_type: TensorType, x: Floats, out: Blocks, isa: str) -> None:
    d, _ = _fit_32(tensor_type, x, out, isa)
    fill_q4(out, table_codes(x, d))


def _super_with_mins(
    top: int, fill: Callable[[Blocks, Codes, Codes, Codes], None], tensor_type: TensorType, x: Floats, out: Blocks,
    isa: str,
) -> None:  # fmt: skip
    d, dmin, scales, mins = _native.fit_super_blocks(tensor_type.name, x, isa)
    scales, mins = scales.reshape(len(x), -1), mins.reshape(len(x), -1)
    grouped = x.reshape(*scales.shape, -1)
    codes = codes_of(grouped + (dmin[:, None] * mins)[..., None], (d[:, None] * scales)[..., None], 0, top)
    out["d"], out["dmin"] = d, dmin
    fill(out, codes.reshape(x.shape), scales.astype(np.uint8), mins)


def _super_symmetric(
    offset: int, fill: Callable[[Blocks, Codes, NDArray[np.int8]], None], tensor_type: TensorType, x: Floats,
    out: Blocks, isa: str,
) -> None:  # fmt: skip
    d, _, scales, _ = _native.fit_super_blocks(tensor_type.name, x, isa)
    scales = scales.reshape(len(x), -1)
    codes = codes_of(x.reshape(*scales.shape, -1), (d[:, None] * scales)[..., None], offset, 2 * offset - 1)
    out["d"] = d
    fill(out, codes.reshape(x.shape), scales)


_ENCODERS: dict[TensorType, Callable[[TensorType, Floats, Blocks, str], None]] = {
    TensorType.Q4_0: partial(_symmetric, 8, fill_q4),
    TensorType.Q5_0: partial(_symmetric, 16, fill_q5),
    TensorType.Q4_1: partial(_with_offset, 15, fill_q4),
    TensorType.Q5_1: partial(_with_offset, 31, fill_q5),
    TensorType.IQ4_NL: _from_table,
    TensorType.Q2_K: partial(_super_with_mins, 3, fill_q2_k),
    TensorType.Q4_K: partial(_super_with_mins, 15, fill_q4_k),
    TensorType.Q5_K: partial(_super_with_mins, 31, fill_q5_k),
    TensorType.Q3_K: partial(_super_symmetric, 4, fill_q3_k),
    TensorType.Q6_K: partial(_super_symmetric, 32, fill_q6_k),
}
