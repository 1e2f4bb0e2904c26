"""Checked access to the tensors of quantised modules: each is there, of its type and shape, or the error names it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelFileError
from octavo.execution.loader import Checkpoint
from octavo.execution.quant_methods.matrices import Floats, Integers

FLOATS = ("F32", "F16", "BF16")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensors:
    """The tensors of a checkpoint, floats and codes alike."""

    checkpoint: Checkpoint
    path: str
    """For messages."""

    def modules(self, suffix: str, dtypes: Collection[str] = ()) -> list[str]:
        """Modules with a tensor of this name (`.weight`), whose codes are of one of these types if any is named."""
        codes = self.checkpoint.code_tensors
        names = [name for name in codes if name.endswith(suffix) and (not dtypes or codes[name].stored in dtypes)]
        return [name.removesuffix(suffix) for name in names]

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self.checkpoint.tensors or name in self.checkpoint.code_tensors

    def dtype(self, name: str) -> str:
        """As the file calls it. Raises ModelFileError where there is no such tensor."""
        self._require(name)
        tensors, codes = self.checkpoint.tensors, self.checkpoint.code_tensors
        return tensors[name].type.name if name in tensors else codes[name].stored

    def shape(self, name: str) -> Shape:
        """Raises ModelFileError where there is no such tensor."""
        self._require(name)
        tensors, codes = self.checkpoint.tensors, self.checkpoint.code_tensors
        return tensors[name].shape if name in tensors else codes[name].shape

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Raises ModelFileError where the tensor is no matrix of at least one row and column."""
        shape = self.shape(name)
        if len(shape) != 2 or min(shape) < 1:
            raise self.error(name, "is no matrix")
        return shape[0], shape[1]

    def require(self, name: str, dtypes: Sequence[str], *shapes: Shape) -> None:
        """Raises ModelFileError unless the tensor is of one of the types, and of one of the shapes."""
        if self.dtype(name) not in dtypes:
            raise self.error(name, f"is not stored as {' or '.join(dtypes)}")
        if self.shape(name) not in shapes:
            raise self.error(name, f"is not {' or '.join(str(list(shape)) for shape in shapes)}")

    def floats(self, name: str) -> Floats:
        """A tensor of scales as float32. Raises ModelFileError where one is not finite."""
        values = self.checkpoint.float32(name)
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            place = wrong[0].tolist()
            raise self.error(name, f"holds {values[tuple(place)]} at {place}, which scales nothing")
        return values

    def codes(self, name: str) -> NDArray[Any]:
        """A tensor of codes as stored: a view."""
        return self.checkpoint.codes(name)

    def error(self, name: str, problem: str) -> ModelFileError:
        """What is wrong with a tensor."""
        described = f"{name} ({self.dtype(name)} {list(self.shape(name))})" if self.has(name) else name
        return ModelFileError(
            f"{self.path}: tensor {described} {problem}. Its file does not fit quantization_config in config.json:"
            " fetch both again from one place"
        )

    def ending(self, *suffixes: str) -> list[str]:
        """Names of all tensors that end so."""
        return [name for name in self._names() if name.endswith(suffixes)]

    def _names(self) -> list[str]:
        return [*self.checkpoint.tensors, *self.checkpoint.code_tensors]

    def _require(self, name: str) -> None:
        if not self.has(name):
            raise self.error(name, "is missing")


def num_groups(inputs: int, group_size: int) -> int:
    """Groups of so many inputs each; -1: all are one."""
    return 1 if group_size == -1 else -(-inputs // group_size)


def neighbours(inputs: int, group_size: int) -> Integers:
    """Group of each input, `[inputs]`, where groups are of neighbours."""
    return (np.arange(inputs) // (inputs if group_size == -1 else group_size)).astype(np.int32)


def group_of_input(tensors: Tensors, g_idx: str, inputs: int, group_size: int) -> Integers:
    """Group of each input, `[inputs]`: as the tensor `g_idx` says, else `group_size` neighbours each (-1: all).

    Raises ModelFileError for a group that there is not.
    """
    if not tensors.has(g_idx):
        return neighbours(inputs, group_size)
    groups, count = tensors.codes(g_idx), num_groups(inputs, group_size)
    wrong = np.flatnonzero((groups < 0) | (groups >= count))
    if len(wrong):
        place = int(wrong[0])
        raise tensors.error(g_idx, f"puts input {place} into group {groups[place]}; there are {count}")
    return np.array(groups, np.int32)
