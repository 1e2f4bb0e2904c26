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
from dataclasses import dataclass

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
Matrix = IntegerMatrix | Float8Matrix


def encode(name: str, read: Callable[[], Matrix]) -> StoredMatrix:
    """The matrix in the format of the table above, under a name for messages.

    Args:
        read: reads codes and scales. It is called now, to find the format, and again for rows that are asked for:
            in between nothing of the matrix is held.
    """
    matrix = read()
    form = _integer_form(matrix) if isinstance(matrix, IntegerMatrix) else _float8_form(matrix)

    def encoded(rows: slice) -> Codes:
        return _encoded(read(), form, rows)

    return StoredMatrix(name, form.type, matrix.shape[0], encoded, form.input_order, packed=True)


@dataclass(frozen=True)
class _Form:
    """How a matrix is written."""

    type: TensorType
    input_order: Integers | None = None


def _encoded(matrix: Matrix, form: _Form, rows: slice) -> Codes:
    width = matrix.shape[1]
    out = np.empty((rows.stop - rows.start, form.type.num_bytes((width,))), np.uint8)
    for piece in _pieces(rows, width):
        target = out[piece.start - rows.start : piece.stop - rows.start]
        if isinstance(matrix, IntegerMatrix):
            _write_integers(matrix, form, piece, target)
        else:
            _write_float8(matrix, form, piece, target)
    return out


# --- whole numbers --------------------------------------------------------------------------------------------------


def _integer_form(matrix: IntegerMatrix) -> _Form:
    order = block_order(matrix.groups)
    target = TensorType.F32 if order is None else _integer_type(matrix)
    if order is None or target is TensorType.F32:
        return _Form(TensorType.F32)
    return _Form(target, None if (order == np.arange(len(order))).all() else order)


def _write_integers(matrix: IntegerMatrix, form: _Form, rows: slice, out: Codes) -> None:
    codes, zeros, scales = _codes(matrix, rows), matrix.zeros[rows], matrix.scales[rows]
    if form.type is TensorType.F32:
        differences = (codes - zeros[:, matrix.groups]).astype(np.float32)
        np.multiply(scales[:, matrix.groups], differences, out=out.view(np.float32))
        return
    groups = matrix.groups
    if form.input_order is not None:
        codes, groups = codes[:, form.input_order], groups[form.input_order]
    block_groups = groups.reshape(-1, _BLOCK)[:, 0]
    zeros, blocks = zeros[:, block_groups], out.view(LAYOUTS[form.type])
    blocks["d"] = scales[:, block_groups]
    _ENCODERS[form.type](codes.reshape(*zeros.shape, _BLOCK), zeros, blocks)


def _codes(matrix: IntegerMatrix, rows: slice) -> Codes:
    """Of any rows: matrices are asked for whole runs of 32."""
    first, stop = rows.start // _BLOCK * _BLOCK, -(-rows.stop // _BLOCK) * _BLOCK
    return matrix.codes(slice(first, min(stop, matrix.shape[0])))[rows.start - first : rows.stop - first]


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


# --- 8-bit floats -----------------------------------------------------------------------------------------------------


def _float8_form(matrix: Float8Matrix) -> _Form:
    of_blocks = matrix.shape[1] % _BLOCK == 0 and (matrix.scales.shape[1] == 1 or matrix.columns % _BLOCK == 0)
    return _Form(TensorType.F8 if of_blocks else TensorType.F32)


def _write_float8(matrix: Float8Matrix, form: _Form, rows: slice, out: Codes) -> None:
    every = _BLOCK if form.type is TensorType.F8 else 1
    columns = np.arange(0, matrix.shape[1], every) // matrix.columns
    scales, codes = matrix.scales[np.arange(rows.start, rows.stop) // matrix.rows][:, columns], matrix.codes[rows]
    if form.type is TensorType.F8:
        blocks = out.view(LAYOUTS[form.type])
        blocks["d"] = scales
        blocks["qs"] = codes.reshape(*scales.shape, _BLOCK)
    else:
        np.multiply(E4M3_VALUES[codes], scales, out=out.view(np.float32))


def _pieces(rows: slice, width: int) -> Iterator[slice]:
    step = max(1, _WEIGHTS_AT_ONCE // max(width, 1) // _BLOCK) * _BLOCK
    return (slice(start, min(start + step, rows.stop)) for start in range(rows.start, rows.stop, step))
