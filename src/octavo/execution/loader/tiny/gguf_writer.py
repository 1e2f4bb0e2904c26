"""Writing GGUF files: what the reader reads, little-endian, version 3."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor to be written; `shape` in NumPy order."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    raw: NDArray[np.uint8]


def write_gguf(path: Path, metadata: Mapping[str, Value], tensors: Sequence[GGUFTensor]) -> None:
    """Writes one file."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    head += [_string(key) + _typed(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        head.append(_tensor_info(tensor, offset))
        offset += _padded(tensor.raw.nbytes)
    header = b"".join(head)
    with path.open("wb") as file:
        file.write(header.ljust(_padded(len(header)), b"\0"))
        for tensor in tensors:
            file.write(tensor.raw.tobytes().ljust(_padded(tensor.raw.nbytes), b"\0"))


def write_split_gguf(
    path: Path, metadata: Mapping[str, Value], tensors: Sequence[GGUFTensor], parts: int
) -> list[Path]:
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
