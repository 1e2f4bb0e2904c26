"""From a tensor of a file to the part that a weight is made of: slices of fused tensors, turned matrices, norms less
one. Bytes are taken as they are stored; nothing is rounded but the sum that `AddOne` is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import UnsupportedModelError
from octavo.execution.quant import TensorType
from octavo.model.sources import AddOne, Columns, OnlyRow, Rows, Stacked, Transform, Transposed, UnpermuteHeads

_ELEMENTS = {TensorType.F32: np.uint32, TensorType.F16: np.uint16, TensorType.BF16: np.uint16}
"""Formats whose elements stand alone -> what holds the bits of one."""


@dataclass(frozen=True)
class StoredMatrix:
    """The bytes of a matrix and how to read them."""

    name: str
    """Of its tensor, for messages."""
    type: TensorType
    raw: npt.NDArray[np.uint8]
    """Rows one after the other."""
    input_order: npt.NDArray[np.int32] | None = None
    """See `LoadedWeight.input_order`."""
    packed: bool = False
    """Whether it was put together from quantised tensors, none of which it is."""


def matrix_part(stored: StoredMatrix, transform: Transform, shape: tuple[int, ...]) -> StoredMatrix:
    """What of a stored matrix makes up a weight `[out, in]`: a view where it stands in one piece, else a copy.

    Raises:
        UnsupportedModelError: the number format does not allow the transform; names the tensor.
    """
    if transform is None or isinstance(transform, UnpermuteHeads):  # executors order the rows while they pack them
        return stored
    return _MATRIX_PARTS[type(transform)](stored, transform, shape)


def vector_part(values: npt.NDArray[np.float32], transform: Transform) -> npt.NDArray[np.float32]:
    """What of a stored vector makes up a weight."""
    match transform:
        case AddOne():
            return values + np.float32(1)
        case Rows(start=start, stop=stop):
            return values[start:stop]
        case None | UnpermuteHeads():
            return values
    raise ValueError(f"a vector has no {transform}")


def _columns(stored: StoredMatrix, columns: Columns, shape: tuple[int, ...]) -> StoredMatrix:
    """They must be whole blocks of the format."""
    if stored.input_order is not None:
        raise UnsupportedModelError(
            f"{stored.name} is quantised with its inputs in another order (g_idx), so that a part of them cannot be"
            " taken. Take a model quantised without act-order"
        )
    rows = stored.raw.reshape(-1, stored.type.num_bytes((columns.width,)))
    start, stop = (stored.type.num_bytes((place,)) for place in (columns.start, columns.stop))
    return replace(stored, raw=np.ascontiguousarray(rows[:, start:stop]).reshape(-1))


def _rows(stored: StoredMatrix, rows: Rows, shape: tuple[int, ...]) -> StoredMatrix:
    row_bytes = stored.type.num_bytes(shape[1:])
    return replace(stored, raw=stored.raw[rows.start * row_bytes : rows.stop * row_bytes])


def _transposed(stored: StoredMatrix, transposed: Transposed, shape: tuple[int, ...]) -> StoredMatrix:
    if stored.packed:
        raise UnsupportedModelError(
            f"{stored.name} is quantised, of an architecture whose files hold matrices as [in, out]: which way it lies"
            " cannot be told. Take an unquantised model, with --quantization"
        )
    if stored.type not in _ELEMENTS:
        raise UnsupportedModelError(
            f"tensor {stored.name} is stored as [in, out] in {stored.type.name}, whose blocks then lie across;"
            f" Octavo turns {', '.join(kind.name for kind in _ELEMENTS)} only. Quantise the model from these again"
        )
    turned = stored.raw.view(_ELEMENTS[stored.type]).reshape(shape[1], -1).T
    rows = transposed.rows
    wanted = turned if rows is None else turned[rows.start : rows.stop]
    return replace(stored, raw=np.ascontiguousarray(wanted).reshape(-1).view(np.uint8))


def _stacked(stored: StoredMatrix, stacked: Stacked, shape: tuple[int, ...]) -> StoredMatrix:
    size = len(stored.raw) // stacked.count
    one = replace(stored, raw=stored.raw[stacked.index * size : (stacked.index + 1) * size])
    return one if stacked.rows is None else _rows(one, stacked.rows, shape)


def _only_row(stored: StoredMatrix, only_row: OnlyRow, shape: tuple[int, ...]) -> StoredMatrix:
    return stored


_MATRIX_PARTS: dict[type, Callable[[StoredMatrix, Any, tuple[int, ...]], StoredMatrix]] = {
    Columns: _columns,
    Rows: _rows,
    Transposed: _transposed,
    Stacked: _stacked,
    OnlyRow: _only_row,
}
