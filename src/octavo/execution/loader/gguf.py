"""GGUF: one file (or numbered parts) with metadata, vocabulary and quantised tensors.

Source: the GGUF specification (ggml repository, docs/gguf.md), versions 2 and 3, little-endian. Layout:

    "GGUF" version tensor_count pair_count | pairs: key type value | infos: name dims type offset | padding | data

Every count, length, dimension and offset is checked against the size of the file before it is used, so that a hostile
file costs no more than reading it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.execution.loader.checkpoint import Checkpoint, MappedCheckpoint, TensorInfo
from octavo.execution.loader.cursor import Cursor
from octavo.execution.loader.mapped_file import MappedFile
from octavo.execution.quant import TensorType

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_MIN_PAIR_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
_MAX_KEY_BYTES = 65535
_MAX_NAME_BYTES = 1024
_MAX_DIMS = 4
_MAX_DIM = 1 << 48
"""Far beyond any file; keeps products of four dimensions small numbers."""
_DEFAULT_ALIGNMENT = 32
_UNREAD_TYPES = {9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 40: "NVFP4"}


@dataclass(frozen=True)
class _Part:
    """One parsed file."""

    file: MappedFile
    metadata: Mapping[str, Any]
    tensors: Sequence[TensorInfo]


def open_gguf(files: Sequence[Path]) -> Checkpoint:
    """Opens a GGUF file, or all parts of a split one in any order. Errors as in `open_checkpoint`."""
    parts = _in_order([_read_part(MappedFile(path)) for path in files])
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        for info in part.tensors:
            if info.name in tensors:
                raise part.file.bad(info.offset, f"tensor {info.name!r} is also in {tensors[info.name].file}")
            tensors[info.name] = info
    return MappedCheckpoint("gguf", parts[0].metadata, tensors, {part.file.path: part.file for part in parts})


def encoded_metadata(path: Path) -> dict[str, bytes]:
    """The metadata of one file with their types as they stand in it, for whoever writes them again.

    Raises:
        ModelFileError: as `open_checkpoint`.
    """
    cursor = Cursor(MappedFile(path))
    _, pair_count = _read_header(cursor)
    values: dict[str, bytes] = {}
    for i in range(pair_count):
        key = cursor.string(f"metadata key {i}", _MAX_KEY_BYTES)
        start = cursor.offset
        _read_value(cursor, key)
        values[key] = cursor.file.data[start : cursor.offset]
    return values


def _in_order(parts: list[_Part]) -> list[_Part]:
    """Parts by their number, after checking that none is missing, doubled or foreign."""
    total = _split_field(parts[0], "split.count", 1)
    by_number: dict[int, _Part] = {}
    for part in parts:
        number = _split_field(part, "split.no", 0)
        if _split_field(part, "split.count", 1) != total or number >= total:
            raise _bad(part, f"is not part of the same {total}-part model as {parts[0].file.path}")
        if number in by_number:
            raise _bad(part, f"has the same part number as {by_number[number].file.path}")
        by_number[number] = part
    missing = [str(n + 1) for n in range(total) if n not in by_number]
    if missing:
        problem = f"is part of a split model of {total} files; missing: part {', '.join(missing)}"
        raise _bad(parts[0], f"{problem}. Put all parts in one folder")
    _check_split_tensor_count(by_number[0], sum(len(part.tensors) for part in parts))
    return [by_number[n] for n in range(total)]


def _split_field(part: _Part, key: str, default: int) -> int:
    value = part.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65535:
        raise _bad(part, f"{key} is {value!r}, not a part number or count. Fetch the file again")
    return value


def _check_split_tensor_count(first: _Part, found: int) -> None:
    expected = first.metadata.get("split.tensors.count", found)
    if expected != found:
        raise _bad(first, f"announces {expected} tensors, all parts together hold {found}. Fetch the files again")


def _bad(part: _Part, problem: str) -> ModelFileError:
    return ModelFileError(problem, str(part.file.path))


def _read_part(file: MappedFile) -> _Part:
    cursor = Cursor(file)
    tensor_count, pair_count = _read_header(cursor)
    metadata = _read_metadata(cursor, pair_count)
    alignment = _alignment(file, metadata)
    tensors = [_read_tensor_info(cursor, i) for i in range(tensor_count)]
    data_start = -(-cursor.offset // alignment) * alignment
    return _Part(file, metadata, _place_tensors(file, tensors, data_start, alignment))


def _read_header(cursor: Cursor) -> tuple[int, int]:
    """Number of tensors and of metadata pairs."""
    if cursor.file.data[:4] != b"GGUF":
        raise cursor.bad(f"not a GGUF file: it starts with {cursor.file.data[:4]!r}")
    cursor.offset = 4
    version = cursor.scalar(_U32, "version")
    if version in (1 << 24, 2 << 24, 3 << 24):
        raise cursor.file.bad(4, "a big-endian GGUF file; convert it to little-endian")
    if version not in (2, 3):
        raise cursor.file.bad(4, f"GGUF version {version}; Octavo reads versions 2 and 3, convert the file again")
    tensor_count = cursor.count("tensor count", _MIN_TENSOR_BYTES)
    return tensor_count, cursor.count("metadata count", _MIN_PAIR_BYTES)


def _read_metadata(cursor: Cursor, pair_count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(pair_count):
        start = cursor.offset
        key = cursor.string(f"metadata key {i}", _MAX_KEY_BYTES)
        if not key or key in metadata:
            problem = f"metadata key {key!r} appears twice" if key else f"metadata key {i} is empty"
            raise cursor.file.bad(start, f"{problem}. Fetch the file again")
        metadata[key] = _read_value(cursor, key)
    return metadata


def _read_value(cursor: Cursor, key: str) -> Any:
    start = cursor.offset
    kind = cursor.scalar(_U32, f"type of {key}")
    if kind in _SCALARS:
        return cursor.scalar(_SCALARS[kind], key)
    if kind == _BOOL:
        return _read_bool(cursor, key)
    if kind == _STRING:
        return cursor.string(key)
    if kind == _ARRAY:
        return _read_array(cursor, key)
    raise cursor.file.bad(start, f"{key} has the unknown value type {kind}. Fetch the file again")


def _read_bool(cursor: Cursor, key: str) -> bool:
    value = cursor.scalar(_SCALARS[0], key)
    if value > 1:
        raise cursor.file.bad(cursor.offset - 1, f"{key} is the bool {value}, not 0 or 1. Fetch the file again")
    return bool(value)


def _read_array(cursor: Cursor, key: str) -> Any:
    """list[str] for strings, a NumPy array for numbers and bools. Arrays of arrays are refused: no model has one."""
    start = cursor.offset
    kind = cursor.scalar(_U32, f"item type of {key}")
    if kind == _STRING:
        return cursor.strings(cursor.count(f"length of {key}", 8), key)
    if kind != _BOOL and kind not in _SCALARS:
        problem = "an array of arrays" if kind == _ARRAY else f"an array of the unknown type {kind}"
        raise cursor.file.bad(start, f"{key} is {problem}. Fetch the file again")
    dtype = np.dtype("u1" if kind == _BOOL else _SCALARS[kind].format)
    values = cursor.array(dtype, cursor.count(f"length of {key}", dtype.itemsize), key)
    return values.astype(np.bool_) if kind == _BOOL else values


def _alignment(file: MappedFile, metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or value < 1 or value & (value - 1):
        problem = f"general.alignment is {value!r}, not a power of two"
        raise ModelFileError(f"{problem}. Fetch the file again", str(file.path))
    return value


def _read_tensor_info(cursor: Cursor, index: int) -> TensorInfo:
    """One tensor info; its offset is still relative to the start of the data."""
    start = cursor.offset
    name = cursor.string(f"name of tensor {index}", _MAX_NAME_BYTES)
    num_dims = cursor.scalar(_U32, f"dimension count of {name}")
    if not name or not 1 <= num_dims <= _MAX_DIMS:
        problem = f"tensor {index} {name!r} has {num_dims} dimensions, not 1 to {_MAX_DIMS}"
        raise cursor.file.bad(start, f"{problem}. Fetch the file again")
    dims = [cursor.scalar(_U64, f"dimension {d} of {name}") for d in range(num_dims)]
    if not all(0 < dim < _MAX_DIM for dim in dims):
        raise cursor.file.bad(start, f"tensor {name!r} has the dimensions {dims}. Fetch the file again")
    tensor_type = _tensor_type(cursor, name)
    shape = tuple(reversed(dims))
    if shape[-1] % tensor_type.block_size:
        raise cursor.file.bad(
            start,
            f"rows of tensor {name!r} have {shape[-1]} weights, not a multiple of the {tensor_type.block_size} "
            f"of a {tensor_type.name} block. Fetch the file again",
        )
    offset = cursor.scalar(_U64, f"offset of {name}")
    return TensorInfo(name, tensor_type, shape, tensor_type.num_bytes(shape), cursor.file.path, offset)


def _tensor_type(cursor: Cursor, name: str) -> TensorType:
    start = cursor.offset
    ggml_id = cursor.scalar(_U32, f"type of {name}")
    known = TensorType.from_ggml(ggml_id)
    if known is not None:
        return known
    if ggml_id in _UNREAD_TYPES:
        readable = ", ".join(t.name for t in TensorType if t.is_in_files)
        raise UnsupportedModelError(
            f"{cursor.file.path}: tensor {name!r} is stored as {_UNREAD_TYPES[ggml_id]}, which Octavo does not read; "
            f"take a file in one of {readable}"
        )
    raise cursor.file.bad(start, f"tensor {name!r} has the unknown type {ggml_id}. Fetch the file again")


def _place_tensors(
    file: MappedFile, tensors: Sequence[TensorInfo], data_start: int, alignment: int
) -> list[TensorInfo]:
    """Absolute offsets, after checking that every tensor lies aligned in the file and none overlaps another."""
    placed = [_placed(file, info, data_start, alignment) for info in tensors]
    names = Counter(info.name for info in placed)
    if len(names) < len(placed):
        raise file.bad(0, f"tensor {names.most_common(1)[0][0]!r} appears twice. Fetch the file again")
    by_offset = sorted(placed, key=lambda info: info.offset)
    for before, after in pairwise(by_offset):
        if before.offset + before.nbytes > after.offset:
            raise file.bad(after.offset, f"tensors {before.name!r} and {after.name!r} overlap. Fetch the file again")
    return placed


def _placed(file: MappedFile, info: TensorInfo, data_start: int, alignment: int) -> TensorInfo:
    offset = data_start + info.offset
    if info.offset % alignment:
        raise file.bad(offset, f"tensor {info.name!r} starts at {info.offset}, off the alignment of {alignment}")
    if offset + info.nbytes > file.size:
        raise file.bad(
            offset,
            f"tensor {info.name!r} of shape {list(info.shape)} in {info.type.name} needs {info.nbytes} bytes, but the "
            f"file ends at {file.size}: it is truncated. Fetch it again",
        )
    return replace(info, offset=offset)
