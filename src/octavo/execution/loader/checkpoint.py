"""What a loaded model file offers, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.execution.loader.mapped_file import MappedFile
from octavo.execution.quant import TensorType, dequantize


@dataclass(frozen=True)
class TensorInfo:
    """One stored tensor: what it is and where its bytes lie."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    """NumPy order: a linear's weight is `[rows, k]`, k the dimension that the dot product runs over."""
    nbytes: int
    file: Path
    offset: int
    """Of the first byte in `file`."""


@dataclass(frozen=True)
class IntegerTensor:
    """One stored tensor of whole numbers: a table, or codes that are a weight only together with others."""

    name: str
    stored: str
    """The file's name of the dtype; 8-bit floats are codes, too."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    file: Path
    offset: int
    """Of the first byte in `file`."""


class Checkpoint(Protocol):
    """Named tensors and metadata of one model. Every range was checked when the files were opened."""

    @property
    def format(self) -> str:
        """`gguf` or `safetensors`: says by which convention tensors and metadata are named."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """GGUF: the key/value pairs as str, int, float, bool, list[str] or NumPy array. safetensors: config.json."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """By name, in the order of the files."""
        ...

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes `[nbytes]`, a read-only view of the mapped file. KeyError where there is no such tensor."""
        ...

    def float32(self, name: str) -> NDArray[np.float32]:
        """The tensor dequantised to float32, in its shape. KeyError where there is no such tensor."""
        ...

    @property
    def code_tensors(self) -> Mapping[str, IntegerTensor]:
        """Codes of which quantised weights are made, where the metadata says how, else masks; not among `tensors`."""
        ...

    def codes(self, name: str) -> NDArray[Any]:
        """One of `code_tensors` as stored, a read-only view in its shape. KeyError where there is no such tensor."""
        ...

    def give_back(self, name: str) -> None:
        """Lets go of the memory in which a tensor's pages lie. Views stay good: what they read comes from the file."""
        ...


class MappedCheckpoint:
    """The `Checkpoint` that the readers build: infos, metadata and the mappings that hold the bytes."""

    def __init__(
        self,
        file_format: str,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, TensorInfo],
        files: Mapping[Path, MappedFile],
        integer_tensors: Mapping[str, IntegerTensor] | None = None,
        code_tensors: Mapping[str, IntegerTensor] | None = None,
    ) -> None:
        self._format = file_format
        self._metadata = metadata
        self._tensors = tensors
        self._files = files
        self._integer_tensors = integer_tensors or {}
        self._code_tensors = code_tensors or {}

    @property
    def format(self) -> str:
        return self._format

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def raw(self, name: str) -> NDArray[np.uint8]:
        info = self._tensors[name]
        return self._files[info.file].view(info.offset, info.nbytes)

    def float32(self, name: str) -> NDArray[np.float32]:
        info = self._tensors[name]
        return dequantize(info.type, self.raw(name), info.shape)

    @property
    def integer_tensors(self) -> Mapping[str, IntegerTensor]:
        """Those that were asked for when the files were opened; they are not among `tensors`."""
        return self._integer_tensors

    def integers(self, name: str) -> NDArray[np.int64]:
        """A tensor of whole numbers, in its shape. KeyError where there is no such tensor."""
        return self._stored(self._integer_tensors[name]).astype(np.int64)

    @property
    def code_tensors(self) -> Mapping[str, IntegerTensor]:
        return self._code_tensors

    def codes(self, name: str) -> NDArray[Any]:
        return self._stored(self._code_tensors[name])

    def give_back(self, name: str) -> None:
        info = self._tensors[name] if name in self._tensors else self._code_tensors[name]
        self._files[info.file].give_back(info.offset, info.nbytes)

    def _stored(self, info: IntegerTensor) -> NDArray[Any]:
        return self._files[info.file].view(info.offset, info.nbytes).view(info.dtype).reshape(info.shape)
