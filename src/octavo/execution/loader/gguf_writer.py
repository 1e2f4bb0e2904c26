"""Writing GGUF files: what the reader reads, little-endian, version 3.

Tensors are given as pieces of their bytes and written as they come, so that a model never has to be in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.execution.loader.pieces import write_pieces
from octavo.execution.quant import TensorType

_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    "u8": (0, "<B"),
    "i8": (1, "<b"),
    "u16": (2, "<H"),
    "i16": (3, "<h"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<?"),
    "u64": (10, "<Q"),
    "i64": (11, "<q"),
    "f64": (12, "<d"),
}


@dataclass(frozen=True)
class Value:
    """A metadata value with its GGUF type: `str`, a number type such as `u32`, or an array such as `[str]`, `[f32]`."""

    type: str
    value: Any


Metadata = Mapping[str, Value | bytes]
"""Key -> value; bytes are a value with its type as it stands in another file (`gguf.encoded_metadata`)."""


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor to be written; `shape` in NumPy order."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    data: Iterable[NDArray[np.uint8]]
    """Its bytes in pieces, in order; asked for once, when it is written."""

    @property
    def nbytes(self) -> int:
        return self.type.num_bytes(self.shape)


FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 11,
              "Q4_K": 14, "Q5_K": 16, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32, "MXFP4": 38}  # fmt: skip
"""`general.file_type` of files whose matrices are mostly of a type (for people: no reader decides by it)."""


def written_bytes(metadata: Metadata, tensors: Sequence[GGUFTensor]) -> int:
    """How long the file will be."""
    return len(_header(metadata, tensors)) + sum(_padded(tensor.nbytes) for tensor in tensors)


def write_gguf(
    path: Path,
    metadata: Metadata,
    tensors: Sequence[GGUFTensor],
    on_written: Callable[[int], None] = lambda num_bytes: None,
) -> None:
    """Writes one file.

    Args:
        on_written: told of the bytes of each piece.

    Raises:
        ValueError: the pieces of a tensor are not as long as its type and shape say.
    """
    with path.open("wb") as file:
        file.write(_header(metadata, tensors))
        for tensor in tensors:
            what = f"{tensor.name} ({tensor.type.name} of shape {tensor.shape})"
            write_pieces(file, tensor.data, tensor.nbytes, what, on_written)
            file.write(bytes(_padded(tensor.nbytes) - tensor.nbytes))


def _header(metadata: Metadata, tensors: Sequence[GGUFTensor]) -> bytes:
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    head += [_string(key) + (value if isinstance(value, bytes) else _typed(value)) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        head.append(_tensor_info(tensor, offset))
        offset += _padded(tensor.nbytes)
    header = b"".join(head)
    return header.ljust(_padded(len(header)), b"\0")


def write_split_gguf(path: Path, metadata: Metadata, tensors: Sequence[GGUFTensor], parts: int) -> list[Path]:
    """Writes `STEM-00001-of-0000N.gguf` and so on beside `path`: all metadata is in the first part."""
    paths = [path.with_name(f"{path.stem}-{n + 1:05}-of-{parts:05}.gguf") for n in range(parts)]
    for n, part in enumerate(paths):
        split = {
            "split.no": Value("u16", n),
            "split.count": Value("u16", parts),
            "split.tensors.count": Value("i32", len(tensors)),
        }
        share = tensors[n * len(tensors) // parts : (n + 1) * len(tensors) // parts]
        write_gguf(part, {**metadata, **split} if n == 0 else split, share)
    return paths


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Value) -> bytes:
    if value.type.startswith("["):
        item_type = value.type.strip("[]")
        return struct.pack("<IIQ", _ARRAY, _type_id(item_type), len(value.value)) + _items(item_type, value.value)
    return struct.pack("<I", _type_id(value.type)) + _items(value.type, [value.value])


def _type_id(name: str) -> int:
    return _STRING if name == "str" else _NUMBERS[name][0]


def _items(name: str, values: Iterable[Any]) -> bytes:
    encode: Callable[[Any], bytes] = _string if name == "str" else struct.Struct(_NUMBERS[name][1]).pack
    return b"".join(map(encode, values))


def _tensor_info(tensor: GGUFTensor, offset: int) -> bytes:
    if not tensor.type.is_in_files:
        raise ValueError(f"{tensor.name}: {tensor.type.name} is a format of memory, which GGUF files do not know")
    dims = tuple(reversed(tensor.shape))
    layout = f"<I{len(dims)}QIQ"
    return _string(tensor.name) + struct.pack(layout, len(dims), *dims, tensor.type.ggml_id, offset)
