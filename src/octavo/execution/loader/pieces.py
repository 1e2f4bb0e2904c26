"""Bytes of a tensor on their way into a file, piece by piece."""

from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


def write_pieces(
    file: BinaryIO, pieces: Iterable[NDArray[Any]], num_bytes: int, tensor: str, on_written: Callable[[int], None]
) -> None:
    """
    Args:
        num_bytes: how many they must be.
        tensor: what they are, for the error.
        on_written: told of the bytes of each piece.

    Raises:
        ValueError: they are more or fewer.
    """
    size = 0
    for piece in pieces:
        file.write(np.ascontiguousarray(piece).data)
        size += piece.nbytes
        on_written(piece.nbytes)
    if size != num_bytes:
        raise ValueError(f"{tensor}: pieces of {size} bytes where there must be {num_bytes}")
