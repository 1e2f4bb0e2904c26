"""From codes and scales to a number format that kernels know: exactly, or not at all.

| codes | scales exact in float16 | else |
|---|---|---|
| up to 4 bits, every zero point 8 | Q4_0 | S8 |
| up to 4 bits | Z4 | S8 |
| code - zero fits a byte (8 bits symmetric) | Q8_0 | S8 |
| others, and groups that are not made of 32 inputs | F32 | F32 |
| 8-bit floats | F8 | F8 (F32 where scales do not cover 32 inputs) |

Every format but F32 holds the numbers that the checkpoint defines; F32 holds them after one rounding.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant import TensorType
from octavo.execution.quant.e4m3 import E4M3_VALUES
from octavo.execution.quant.layout import LAYOUTS
from octavo.execution.quant.packing import HIGH_NIBBLE
from octavo.execution.quant_methods.matrices import Codes, Float8Matrix, Floats, IntegerMatrix, Integers
from octavo.execution.weight_parts import StoredMatrix

_BLOCK = 32
_WEIGHTS_AT_ONCE = 1 << 19
"""Rows are encoded in pieces of about so many weights."""

Blocks = NDArray[np.void]


def encode(name: str, matrix: IntegerMatrix | Float8Matrix) -> StoredMatrix:
    """The matrix in the format of the table above, under a name for messages."""
    return _encode_integers(name, matrix) if isinstance(matrix, IntegerMatrix) else _encode_float8(name, matrix)


# --- whole numbers --------------------------------------------------------------------------------------------------


def _encode_integers(name: str, matrix: IntegerMatrix) -> StoredMatrix:
    order = block_order(matrix.groups)
    block_groups = None if order is None else matrix.groups[order].reshape(-1, _BLOCK)[:, 0]
    target = TensorType.F32 if block_groups is None else _integer_type(matrix)
    if order is None or block_groups is None or target is TensorType.F32:
        return StoredMatrix(name, TensorType.F32, _dequantised(matrix), packed=True)
    is_ordered = bool((order == np.arange(len(order))).all())
    blocks = np.empty((matrix.shape[0], len(block_groups)), LAYOUTS[target])
    for rows in _pieces(matrix.shape):
        codes = matrix.codes(rows)
        codes = codes if is_ordered else codes[:, order]
        zeros, scales = matrix.zeros[rows][:, block_groups], matrix.scales[rows][:, block_groups]
        blocks[rows]["d"] = scales
        _ENCODERS[target](codes.reshape(*zeros.shape, _BLOCK), zeros, blocks[rows])
    input_order = None if is_ordered else order
    return StoredMatrix(name, target, blocks.reshape(-1).view(np.uint8), input_order, packed=True)


def block_order(groups: Integers) -> Integers | None:
    """The order of inputs in which every 32 of them are of one group: the model's own if it will do, else by group.

    None where there is none: groups that are not made of 32s.
    """
    if len(groups) % _BLOCK:
        return None
    own = np.arange(len(groups), dtype=np.int32)
    orders = (own, np.argsort(groups, kind="stable").astype(np.int32))
    return next((order for order in orders if _is_by_blocks(groups[order])), None)


def _is_by_blocks(groups: Integers) -> bool:
    blocks = groups.reshape(-1, _BLOCK)
    return bool((blocks == blocks[:, :1]).all())


def _integer_type(matrix: IntegerMatrix) -> TensorType:
    exact = _is_float16(matrix.scales)
    low, high = int(matrix.zeros.min()), int(matrix.zeros.max())
    if exact and matrix.bits <= 4 and low >= 0 and high <= np.iinfo(np.uint8).max:
        return TensorType.Q4_0 if low == high == 8 else TensorType.Z4
    if -high < np.iinfo(np.int8).min or (1 << matrix.bits) - 1 - low > np.iinfo(np.int8).max:
        return TensorType.F32
    return TensorType.Q8_0 if exact else TensorType.S8


def _is_float16(values: Floats) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())


def _nibbles(codes: Codes, zeros: Integers, out: Blocks) -> None:
    half = _BLOCK // 2
    out["qs"] = codes[..., :half] | (codes[..., half:] << HIGH_NIBBLE)


def _nibbles_around_zeros(codes: Codes, zeros: Integers, out: Blocks) -> None:
    _nibbles(codes, zeros, out)
    out["zero"] = zeros


def _signed_bytes(codes: Codes, zeros: Integers, out: Blocks) -> None:
    out["qs"] = codes.astype(np.int16) - zeros[..., None].astype(np.int16)


_ENCODERS: dict[TensorType, Callable[[Codes, Integers, Blocks], None]] = {
    TensorType.Q4_0: _nibbles,
    TensorType.Z4: _nibbles_around_zeros,
    TensorType.Q8_0: _signed_bytes,
    TensorType.S8: _signed_bytes,
}
"""(codes `[rows, blocks, 32]`, zeros `[rows, blocks]`, blocks to fill), by format."""


def _dequantised(matrix: IntegerMatrix) -> Codes:
    values = np.empty(matrix.shape, np.float32)
    for rows in _pieces(matrix.shape):
        zeros, scales = matrix.zeros[rows][:, matrix.groups], matrix.scales[rows][:, matrix.groups]
        values[rows] = scales * (matrix.codes(rows) - zeros).astype(np.float32)
    return values.reshape(-1).view(np.uint8)


# --- 8-bit floats -----------------------------------------------------------------------------------------------------


def _encode_float8(name: str, matrix: Float8Matrix) -> StoredMatrix:
    width = matrix.shape[1]
    of_blocks = width % _BLOCK == 0 and (matrix.scales.shape[1] == 1 or matrix.columns % _BLOCK == 0)
    target, every = (TensorType.F8, _BLOCK) if of_blocks else (TensorType.F32, 1)
    columns = np.arange(0, width, every) // matrix.columns
    out = np.empty((matrix.shape[0], len(columns)), LAYOUTS[target] if of_blocks else np.float32)
    for rows in _pieces(matrix.shape):
        places = np.arange(rows.start, rows.stop) // matrix.rows
        scales = matrix.scales[places][:, columns]
        if of_blocks:
            out[rows]["d"] = scales
            out[rows]["qs"] = matrix.codes[rows].reshape(*scales.shape, _BLOCK)
        else:
            out[rows] = E4M3_VALUES[matrix.codes[rows]] * scales
    return StoredMatrix(name, target, out.reshape(-1).view(np.uint8), packed=True)


def _pieces(shape: tuple[int, int]) -> Iterator[slice]:
    rows, width = shape
    step = max(1, _WEIGHTS_AT_ONCE // max(width, 1) // _BLOCK) * _BLOCK
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
