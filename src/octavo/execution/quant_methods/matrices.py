"""What methods read out of checkpoints: matrices of codes and their scales, whatever tensors they were packed in."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Integers = NDArray[np.int32]


@dataclass(frozen=True)
class IntegerMatrix:
    """`w[o, i] = scales[o, g] * (codes[o, i] - zeros[o, g])`, g the group of input i."""

    shape: tuple[int, int]
    """`[out, in]`."""
    bits: int
    """Codes run from 0 to `2 ** bits - 1`."""
    codes: Callable[[slice], Codes]
    """Of some outputs, `[outputs, in]`. Slices begin at multiples of 32."""
    scales: Floats
    """`[out, groups]`, finite."""
    zeros: Integers
    """`[out, groups]`."""
    groups: Integers
    """Group of each input, `[in]`."""


@dataclass(frozen=True)
class Float8Matrix:
    """`w[o, i] = e4m3(codes[o, i]) * scales[o // rows, i // columns]`, one rounding."""

    codes: Codes
    """`[out, in]`."""
    scales: Floats
    """`[out / rows, in / columns]`, rounded up; finite."""
    rows: int
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """`[out, in]`."""
        out, width = self.codes.shape
        return out, width


@dataclass(frozen=True)
class PackedWeight:
    """A matrix of the model that stands in several tensors, none of which is it."""

    shape: tuple[int, int]
    """`[out, in]`, as its model knows it."""
    tensors: tuple[str, ...]
    """Names of the tensors that hold it."""
    read: Callable[[], IntegerMatrix | Float8Matrix]
    """Raises ModelFileError, naming the tensor, where their contents do not make a matrix."""


@dataclass(frozen=True)
class PackedWeights:
    """How a checkpoint's quantised weights stand in it."""

    weights: dict[str, PackedWeight]
    """By the name that the weight would have if it were one tensor: `...q_proj.weight`."""
    spare: frozenset[str] = frozenset()
    """Tensors without use here: scales of activations and of K and V, which Octavo finds as it computes."""

    @property
    def hidden(self) -> frozenset[str]:
        """Tensors that are not to be looked at one by one."""
        return self.spare.union(*(weight.tensors for weight in self.weights.values()))
