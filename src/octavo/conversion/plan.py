"""What is to be written: each tensor's new type, and where its bytes come from. Nothing is read before that."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from octavo.execution.loader.gguf_writer import GGUFTensor, Metadata
from octavo.execution.quant import TensorType

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Source:
    """What a plan is made from."""

    name: str
    """As the user gave it."""
    folder: Path
    files: tuple[Path, ...]


@dataclass(frozen=True)
class GGUFPlan:
    """A GGUF file that is not written yet."""

    metadata: Metadata
    tensors: list[GGUFTensor]
    stored: Mapping[str, TensorType]
    """Tensor -> the type it comes from."""

    @property
    def changed(self) -> list[GGUFTensor]:
        """Tensors that get another type."""
        return [tensor for tensor in self.tensors if tensor.type is not self.stored[tensor.name]]


class Checksums:
    """CRC-32 of what went into a file, tensor by tensor: what is read from it again must have the same."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}

    def watched(self, tensor: GGUFTensor) -> GGUFTensor:
        """The tensor, whose bytes are summed up as they pass."""
        return GGUFTensor(tensor.name, tensor.type, tensor.shape, self._pass_on(tensor))

    def _pass_on(self, tensor: GGUFTensor) -> Iterator[Bytes]:
        total = 0
        for piece in tensor.data:
            total = crc32(np.ascontiguousarray(piece).data, total)
            yield piece
        self.by_name[tensor.name] = total
