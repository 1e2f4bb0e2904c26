"""A tensor of a tiny model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant import TensorType, dequantize


@dataclass(frozen=True)
class Stored:
    """A tensor in the bytes of its type. Formats that cannot hold these write `values`: both hold the same numbers."""

    type: TensorType
    shape: tuple[int, ...]
    raw: NDArray[np.uint8]

    @property
    def values(self) -> NDArray[np.float32]:
        """The tensor dequantised."""
        return dequantize(self.type, self.raw, self.shape)

    def with_rows(self, order: NDArray[np.intp]) -> Stored:
        """The same matrix with its rows in another order."""
        rows = self.raw.reshape(self.shape[0], -1)
        return Stored(self.type, self.shape, rows[order].reshape(-1))
