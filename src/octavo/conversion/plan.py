"""What is to be written: each tensor's new type, and where its bytes come from. Nothing is read before that."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from octavo.execution.loader import gguf_writer, safetensors_writer
from octavo.execution.loader.gguf_writer import GGUFTensor, Metadata
from octavo.execution.loader.safetensors_writer import SafeTensor
from octavo.execution.quant import TensorType

Bytes = NDArray[Any]
OnWritten = Callable[[int], None]


@dataclass(frozen=True)
class Source:
    """What a plan is made from."""

    name: str
    """As the user gave it."""
    folder: Path
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Change:
    """A tensor of the source, and what becomes of it."""

    name: str
    stored: TensorType
    wanted: TensorType


class Checksums:
    """CRC-32 of what went into a file, tensor by tensor: what is read from it again must have the same."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}

    def watched(self, name: str, data: Iterable[Bytes]) -> Iterator[Bytes]:
        """The pieces, summed up as they pass."""
        total = 0
        for piece in data:
            total = crc32(np.ascontiguousarray(piece).data, total)
            yield piece
        self.by_name[name] = total


class Plan(Protocol):
    """A model that is not written yet."""

    @property
    def changes(self) -> list[Change]:
        """All tensors, also those that stay as they are."""
        ...

    @property
    def num_bytes(self) -> int:
        """That the result will take."""
        ...

    @property
    def num_tensor_bytes(self) -> int:
        """Of these, those that `on_written` will have been told of."""
        ...

    def write(self, path: Path, on_written: OnWritten) -> tuple[list[Path], Checksums]:
        """Writes it; returns its weight files and what went into them."""
        ...


@dataclass(frozen=True)
class GGUFPlan:
    """A GGUF file."""

    metadata: Metadata
    tensors: list[GGUFTensor]
    stored: Mapping[str, TensorType]
    """Tensor -> the type it comes from."""

    @property
    def changes(self) -> list[Change]:
        return [Change(tensor.name, self.stored[tensor.name], tensor.type) for tensor in self.tensors]

    @property
    def num_bytes(self) -> int:
        return gguf_writer.written_bytes(self.metadata, self.tensors)

    @property
    def num_tensor_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def write(self, path: Path, on_written: OnWritten) -> tuple[list[Path], Checksums]:
        sums = Checksums()
        tensors = [replace(tensor, data=sums.watched(tensor.name, tensor.data)) for tensor in self.tensors]
        gguf_writer.write_gguf(path, self.metadata, tensors, on_written)
        return [path], sums


@dataclass(frozen=True)
class FolderPlan:
    """A Hugging Face folder."""

    config: Mapping[str, Any]
    """config.json."""
    tensors: list[SafeTensor]
    changes: list[Change]
    copied: list[Path]
    """Files that come along as they are."""

    @property
    def num_bytes(self) -> int:
        return safetensors_writer.written_bytes(self.tensors) + sum(path.stat().st_size for path in self.copied)

    @property
    def num_tensor_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def write(self, path: Path, on_written: OnWritten) -> tuple[list[Path], Checksums]:
        sums = Checksums()
        path.mkdir()
        for file in self.copied:
            shutil.copyfile(file, path / file.name)
        (path / "config.json").write_text(json.dumps(self.config, indent=2, ensure_ascii=False) + "\n", "utf-8")
        weights = path / "model.safetensors"
        tensors = [replace(tensor, data=sums.watched(tensor.name, tensor.data)) for tensor in self.tensors]
        safetensors_writer.write_safetensors(weights, tensors, on_written)
        return [weights], sums
