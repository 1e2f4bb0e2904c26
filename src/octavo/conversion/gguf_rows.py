"""A program's weights as GGUF files hold them: the loader's transforms, the other way round."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UnsupportedModelError
from octavo.execution.quant import TensorType
from octavo.execution.quant.convert import convert
from octavo.execution.requantize import with_inputs_in_order
from octavo.execution.weights import LoadedWeight
from octavo.model.sources import OnlyRow, Rows, Stacked, Transform, UnpermuteHeads

Bytes = NDArray[np.uint8]
FIRST_OWN_ID = 1000
"""Formats with such ids are Octavo's own: no file holds them."""


@dataclass(frozen=True)
class Part:
    """One weight of the program in a tensor of a file."""

    weight: LoadedWeight
    transform: Transform


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a GGUF file, put together from weights."""

    name: str
    parts: Sequence[Part]

    @property
    def shape(self) -> tuple[int, ...]:
        height, *width = self.parts[0].weight.shape
        match self.parts[0].transform:
            case Stacked():
                return (len(self.parts), height, *width)
            case OnlyRow():
                return tuple(width)
        return (sum(part.weight.shape[0] for part in self.parts), *width)

    @property
    def stored(self) -> TensorType:
        """The type it comes from; F32 stands for those that GGUF does not have."""
        kind = self.parts[0].weight.type
        return TensorType.F32 if kind.ggml_id >= FIRST_OWN_ID else kind

    def data(self, target: TensorType, pool: ThreadPoolExecutor) -> Iterator[Bytes]:
        """Its bytes in `target`, piece by piece."""
        for part in self.parts:
            weight = with_inputs_in_order(part.weight)
            width = weight.shape[-1] if len(weight.shape) > 1 else 1  # biases are ordered like their rows
            rows = weight.raw.reshape(prod(weight.shape) // width, -1)
            order = _file_order(weight, part.transform)
            ordered = rows if order is None else rows[order]
            yield from convert(self.name, weight.type, ordered, width, target, pool)


def file_tensor(name: str, parts: list[Part]) -> FileTensor:
    """Parts in the order of their rows, experts in the order of their numbers.

    Raises:
        UnsupportedModelError: they are put together in another way than row below row.
    """
    for part in parts:
        if not isinstance(part.transform, Rows | UnpermuteHeads | Stacked | OnlyRow | None):
            raise UnsupportedModelError(
                f"tensor {name!r} is made by {type(part.transform).__name__}, which Octavo does not undo for GGUF files"
            )
    if len(parts) > 1:
        parts = sorted(parts, key=_place)
    return FileTensor(name, parts)


def _place(part: Part) -> int:
    match part.transform:
        case Rows(start=start):
            return start
        case Stacked(index=index):
            return index
    return 0


def _file_order(weight: LoadedWeight, transform: Transform) -> NDArray[np.intp] | None:
    """Row of the file -> row of `weight.raw`; None: the same."""
    order = None if weight.row_order is None else weight.row_order.astype(np.intp)
    if not isinstance(transform, UnpermuteHeads):
        return order
    row_of_file = np.argsort(np.array(transform.row_order()))
    return row_of_file if order is None else order[row_of_file]
