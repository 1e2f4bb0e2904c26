"""safetensors: tensors behind a JSON header, possibly in several shards listed by an index.

Source: the safetensors format description (README of the safetensors repository). Layout:

    header length (u64) | header: JSON {name: {dtype, shape, data_offsets: [begin, end]}} | tensor data

The data must be covered by the tensors without holes or overlaps, as the format demands.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.execution.loader.checkpoint import IntegerTensor, MappedCheckpoint, TensorInfo
from octavo.execution.loader.cursor import Cursor
from octavo.execution.loader.json_file import parse_json_object, read_json_object
from octavo.execution.loader.mapped_file import MappedFile
from octavo.execution.quant import TensorType

INDEX_NAME = "model.safetensors.index.json"
_HEADER_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the format's reference implementation."""
_MAX_DIMS = 8
_MAX_FILE_BYTES = 1 << 48
_TYPES = {"F32": TensorType.F32, "F16": TensorType.F16, "BF16": TensorType.BF16}
_INTEGER_TYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
_CODE_TYPES: Mapping[str, np.dtype[Any]] = {
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "F8_E4M3": np.dtype("u1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
"""Of tensors that quantised weights are made of."""
_MASK_TYPES: Mapping[str, np.dtype[Any]] = {"BOOL": np.dtype(np.bool_), "U8": np.dtype("u1")}
"""Of causal masks, which old files store among the weights. Who reads weights refuses those that have no use."""
QUANTISATION_KEYS = ("quantization_config", "compression_config")
"""Keys of config.json that say how weights are made of codes. The second is what old files call the first."""
_NO_METHOD = (
    ". If this is a quantised model: config.json lacks quantization_config, which says how to read it (old tools wrote"
    " it to quantize_config.json or quant_config.json: put it there, with quant_method)"
)
_OTHER_DTYPES = frozenset(
    {"BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64", "F64", "C64"}
    | {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"}
)

_Tensor = TensorInfo | IntegerTensor


def open_safetensors(files: Sequence[Path], integers: Collection[str] = ()) -> MappedCheckpoint:
    """Opens a Hugging Face model: the given files, or all shards where an index lies beside them.

    The metadata is the folder's config.json. Where it says that weights are quantised, tensors may also hold codes.
    Errors as in `open_checkpoint`.

    Args:
        integers: names of tensors that may hold whole numbers; any other that does is an error.
    """
    folder = files[0].parent
    index_path = folder / INDEX_NAME
    weight_map = _read_weight_map(index_path) if index_path.is_file() else None
    shards = files if weight_map is None else _shards(index_path, weight_map)
    mapped = {path: MappedFile(path) for path in shards}
    metadata = read_json_object(folder / "config.json")
    kinds = _Kinds(integers, codes=any(metadata.get(key) is not None for key in QUANTISATION_KEYS))
    found: dict[str, _Tensor] = {}
    for file in mapped.values():
        for info in _read_shard(file, kinds):
            if info.name in found:
                raise file.bad(info.offset, f"tensor {info.name!r} is also in {found[info.name].file}")
            found[info.name] = info
    if weight_map is not None:
        _check_index(index_path, weight_map, found)
    tensors = {name: info for name, info in found.items() if isinstance(info, TensorInfo)}
    others = {name: info for name, info in found.items() if isinstance(info, IntegerTensor)}
    tables = {name: info for name, info in others.items() if name in integers}
    codes = {name: info for name, info in others.items() if name not in integers}
    return MappedCheckpoint("safetensors", metadata, tensors, mapped, tables, codes)


def _read_weight_map(index_path: Path) -> dict[str, str]:
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(v, str) for v in weight_map.values()):
        raise ModelFileError("weight_map is no object of tensor names to file names", str(index_path))
    for name in weight_map.values():
        if Path(name).name != name or "\0" in name:
            raise ModelFileError(f"the shard {name!r} is no plain file name beside the index", str(index_path))
    return weight_map


def _shards(index_path: Path, weight_map: Mapping[str, str]) -> list[Path]:
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (index_path.parent / name).is_file()]
    if missing:
        raise ModelFileError(f"missing shards: {', '.join(missing)}. Fetch them into the same folder", str(index_path))
    return [index_path.parent / name for name in names]


def _check_index(index_path: Path, weight_map: Mapping[str, str], tensors: Mapping[str, _Tensor]) -> None:
    for name, shard in weight_map.items():
        if name not in tensors or tensors[name].file.name != shard:
            raise ModelFileError(f"says that tensor {name!r} is in {shard}, which is not so", str(index_path))


@dataclass(frozen=True)
class _Kinds:
    """Which tensors may hold something else than floats."""

    tables: Collection[str]
    """Names of tensors that may hold whole numbers."""
    codes: bool
    """Whether any tensor may hold codes."""

    def of(self, name: str) -> Mapping[str, np.dtype[Any]]:
        """Types besides floats that a tensor of this name may have, by the file's names for them."""
        if name in self.tables:
            return _INTEGER_TYPES
        return _CODE_TYPES if self.codes else {}


def _read_shard(file: MappedFile, kinds: _Kinds) -> list[_Tensor]:
    cursor = Cursor(file)
    length = cursor.scalar(_HEADER_LENGTH, "header length")
    if not 2 <= length <= min(cursor.remaining, _MAX_HEADER_BYTES):
        raise file.bad(0, f"header of {length} bytes in a file of {file.size}: it is truncated. Fetch it again")
    header = parse_json_object(file.data[8 : 8 + length], file.path, 8)
    header.pop("__metadata__", None)
    data_start = 8 + length
    infos = [_tensor_info(file, name, entry, data_start, kinds) for name, entry in header.items()]
    _check_coverage(file, infos, data_start)
    return infos


def _tensor_info(file: MappedFile, name: str, entry: Any, data_start: int, kinds: _Kinds) -> _Tensor:
    if not isinstance(entry, dict):
        raise file.bad(8, f"header entry {name!r} is no object. Fetch the file again")
    dtype, others = entry.get("dtype"), kinds.of(name)
    if not isinstance(dtype, str):
        raise file.bad(8, f"tensor {name!r} has the unknown dtype {dtype!r}. Fetch the file again")
    readable = {**_MASK_TYPES, **others}
    kind = readable[dtype] if dtype in readable else _tensor_type(file, name, dtype, others)
    shape = _naturals(file, name, "shape", entry.get("shape"))
    offsets = _naturals(file, name, "data_offsets", entry.get("data_offsets"))
    nbytes = prod(shape) * (kind.block_bytes if isinstance(kind, TensorType) else kind.itemsize)
    if len(offsets) != 2 or offsets[1] - offsets[0] != nbytes:
        raise file.bad(
            8,
            f"tensor {name!r} of shape {list(shape)} in {dtype} is {nbytes} bytes, its data_offsets are "
            f"{list(offsets)}. Fetch the file again",
        )
    begin = data_start + offsets[0]
    if isinstance(kind, TensorType):
        return TensorInfo(name, kind, shape, nbytes, file.path, begin)
    return IntegerTensor(name, dtype, kind, shape, nbytes, file.path, begin)


def _tensor_type(file: MappedFile, name: str, dtype: str, others: Iterable[str]) -> TensorType:
    if dtype in _TYPES:
        return _TYPES[dtype]
    if dtype in _OTHER_DTYPES:
        readable = ", ".join((*_TYPES, *others))
        raise UnsupportedModelError(
            f"{file.path}: tensor {name!r} is stored as {dtype}; Octavo reads safetensors in {readable}"
            + ("" if others or dtype not in _CODE_TYPES else _NO_METHOD)
        )
    raise file.bad(8, f"tensor {name!r} has the unknown dtype {dtype!r}. Fetch the file again")


def _naturals(file: MappedFile, name: str, field: str, value: Any) -> tuple[int, ...]:
    """A short list of non-negative integers no larger than any file."""
    is_short = isinstance(value, list) and len(value) <= _MAX_DIMS
    if not is_short or not all(type(item) is int and 0 <= item < _MAX_FILE_BYTES for item in value):
        raise file.bad(8, f"{field} of tensor {name!r} is no list of at most {_MAX_DIMS} sizes. Fetch the file again")
    return tuple(value)


def _check_coverage(file: MappedFile, infos: Sequence[_Tensor], data_start: int) -> None:
    """Tensors follow each other without hole or overlap, from the end of the header to the end of the file."""
    end = data_start
    for info in sorted(infos, key=lambda info: (info.offset, info.nbytes)):
        if info.offset != end:
            kind = "overlaps the tensor before it" if info.offset < end else "leaves a hole before it"
            raise file.bad(info.offset, f"tensor {info.name!r} {kind}. Fetch the file again")
        end += info.nbytes
    if end != file.size:
        kind = "truncated" if end > file.size else "followed by foreign bytes"
        raise file.bad(end, f"tensors end at byte {end}, the file at {file.size}: it is {kind}. Fetch it again")
