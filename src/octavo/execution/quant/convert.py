"""Rows of weights from one type to another, in pieces: what is in memory at a time is small beside a big matrix."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UnsupportedModelError
from octavo.execution.quant.dequantize import dequantize
from octavo.execution.quant.fit import fit
from octavo.execution.quant.types import TensorType

_WEIGHTS_AT_ONCE = 1 << 20
_LARGEST = {TensorType.F32: np.inf, TensorType.BF16: np.inf}
"""Magnitudes that a type holds; of others what float16 does, the type of their scales."""
_LARGEST_FLOAT16 = 65504.0


def convert(
    name: str,
    stored: TensorType,
    rows: NDArray[np.uint8],
    width: int,
    target: TensorType,
    pool: ThreadPoolExecutor,
) -> Iterator[NDArray[np.uint8]]:
    """The rows in another type, piece by piece in their order.

    Args:
        name: of the tensor, for messages.
        rows: `[rows, bytes of a row]` in `stored`.
        width: weights of a row.
        pool: its threads work on the pieces.

    Raises:
        UnsupportedModelError: a weight that is not finite, or too large for the target.
    """

    def converted(start: int) -> NDArray[np.uint8]:
        piece = rows[start : start + at_once]
        values = dequantize(stored, piece.reshape(-1), (len(piece), width))
        _check(name, values, target)
        return fit(target, values)

    at_once = max(1, _WEIGHTS_AT_ONCE // width)
    starts = range(0, len(rows), at_once)
    if stored is target:
        yield from (rows[start : start + at_once].reshape(-1) for start in starts)
    else:
        yield from pool.map(converted, starts)


def _check(name: str, values: NDArray[np.float32], target: TensorType) -> None:
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= _LARGEST.get(target, _LARGEST_FLOAT16):
        fix = "bf16 and f32 hold it" if np.isfinite(largest) else "the model is damaged; fetch it again"
        raise UnsupportedModelError(f"tensor {name!r} holds {largest:g}, which {target.name} does not: {fix}")
