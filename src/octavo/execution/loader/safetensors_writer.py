"""Writing safetensors files, piece by piece: a model never has to be in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from octavo.execution.loader.pieces import write_pieces

_SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I8": 1, "U8": 1, "F8_E4M3": 1}
_ALIGNMENT = 8


@dataclass(frozen=True)
class SafeTensor:
    """A tensor to be written."""

    name: str
    dtype: str
    """As the format names it."""
    shape: tuple[int, ...]
    data: Iterable[NDArray[Any]]
    """Its bytes in pieces, in order; asked for once, when it is written."""

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * _SIZES[self.dtype]


def written_bytes(tensors: Sequence[SafeTensor]) -> int:
    """How long the file will be."""
    return len(_header(tensors)) + sum(tensor.nbytes for tensor in tensors)


def write_safetensors(
    path: Path, tensors: Sequence[SafeTensor], on_written: Callable[[int], None] = lambda num_bytes: None
) -> None:
    """Writes one file.

    Args:
        on_written: told of the bytes of each piece.

    Raises:
        ValueError: the pieces of a tensor are not as long as its type and shape say.
    """
    with path.open("wb") as file:
        file.write(_header(tensors))
        for tensor in tensors:
            what = f"{tensor.name} ({tensor.dtype} of shape {tensor.shape})"
            write_pieces(file, tensor.data, tensor.nbytes, what, on_written)


def _header(tensors: Sequence[SafeTensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
