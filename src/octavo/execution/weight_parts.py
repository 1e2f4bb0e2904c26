"""From a tensor of a file to the part that a weight is made of: slices of fused tensors, turned matrices, norms less
one. Bytes are taken as they are stored; nothing is rounded but the sum that `AddOne` is.

What a part is (its format, whether it can be had at all) is known at once; its bytes are made when they are asked for,
some rows at a time, so that nobody holds a model twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from octavo.errors import UnsupportedModelError
from octavo.execution.quant import TensorType, native_type, to_native
from octavo.model.sources import AddOne, Columns, OnlyRow, Rows, Stacked, Transform, Transposed, UnpermuteHeads

_ELEMENTS = {TensorType.F32: np.uint32, TensorType.F16: np.uint16, TensorType.BF16: np.uint16}
"""Formats whose elements stand alone -> what holds the bits of one."""

Bytes = npt.NDArray[np.uint8]
ReadRows = Callable[[slice], Bytes]
"""The bytes of the rows from `start` up to `stop`, `[rows, bytes of a row]`: a view, or made anew by each call."""


@dataclass(frozen=True)
class StoredMatrix:
    """The rows of a matrix and how to read them."""

    name: str
    """Of its tensor, for messages."""
    type: TensorType
    num_rows: int
    rows: ReadRows
    input_order: npt.NDArray[np.int32] | None = None
    """See `LoadedWeight.input_order`."""
    packed: bool = False
    """Whether it was put together from quantised tensors, none of which it is."""
    mapped: bool = False
    """Whether its rows are a view of a mapped file, one after the other."""

    @classmethod
    def of(cls, name: str, kind: TensorType, shape: tuple[int, ...], raw: Bytes, *, mapped: bool = False) -> Self:
        """One whose bytes are there: of a tensor of this shape, `[..., in]`."""
        rows = raw.reshape(prod(shape[:-1]), -1)
        return cls(name, kind, len(rows), rows.__getitem__, mapped=mapped)

    @property
    def raw(self) -> Bytes:
        """All rows, one after the other, read or made now."""
        return self.rows(slice(0, self.num_rows)).reshape(-1)


def matrix_part(stored: StoredMatrix, transform: Transform, shape: tuple[int, ...]) -> StoredMatrix:
    """What of a stored matrix makes up a weight `[out, in]`: views where it stands in one piece, else copies.

    Raises:
        UnsupportedModelError: the number format does not allow the transform; names the tensor.
    """
    if transform is None or isinstance(transform, UnpermuteHeads):  # executors order the rows while they pack them
        return stored
    return _MATRIX_PARTS[type(transform)](stored, transform, shape)


def in_native_type(stored: StoredMatrix, width: int) -> StoredMatrix:
    """The matrix, of so many inputs, in a format with kernels: itself where it is in one."""
    native = native_type(stored.type)
    if native is stored.type:
        return stored

    def converted(rows: slice) -> Bytes:
        raw = stored.rows(rows)
        return to_native(stored.type, raw.reshape(-1), (len(raw), width))[1].reshape(len(raw), -1)

    return replace(stored, type=native, rows=converted, mapped=False)


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
    start, stop = (stored.type.num_bytes((place,)) for place in (columns.start, columns.stop))

    def cut(rows: slice) -> Bytes:
        return np.ascontiguousarray(stored.rows(rows)[:, start:stop])

    return replace(stored, rows=cut, mapped=False)


def _rows(stored: StoredMatrix, rows: Rows, shape: tuple[int, ...]) -> StoredMatrix:
    return _from_row(stored, rows.start, rows.stop - rows.start)


def _from_row(stored: StoredMatrix, first: int, count: int) -> StoredMatrix:
    def shifted(rows: slice) -> Bytes:
        return stored.rows(slice(first + rows.start, first + rows.stop))

    return replace(stored, num_rows=count, rows=shifted)


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
    element, first = _ELEMENTS[stored.type], 0 if transposed.rows is None else transposed.rows.start

    def turned(rows: slice) -> Bytes:
        matrix = stored.raw.view(element).reshape(stored.num_rows, -1).T
        return np.ascontiguousarray(matrix[first + rows.start : first + rows.stop]).view(np.uint8)

    return replace(stored, num_rows=shape[0], rows=turned, mapped=False)


def _stacked(stored: StoredMatrix, stacked: Stacked, shape: tuple[int, ...]) -> StoredMatrix:
    height = stored.num_rows // stacked.count
    one = _from_row(stored, stacked.index * height, height)
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
