"""Packed weights in a file that all engines of a machine map: written once, held once, ready at the next start.

<folder>/<key>.weights      header, zeros up to 2 MiB, the matrices as the kernels read them, zeros up to whole 2 MiB
<folder>/<key>.lock         held while the file is written

The key names the model's bytes, the matrices in their order and formats, and the packing itself (by what it makes of
known bytes), so a file is right for its name or is not used. It appears by one rename, complete. Every instruction set
reads the same packing.
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from octavo import _native
from octavo.execution.native.pack_weights import PackReport, batches, pack_weights, source
from octavo.execution.quant import TensorType
from octavo.execution.weights import LoadedWeight

log = logging.getLogger(__name__)

DATA_OFFSET = 2 << 20
"""Of the first matrix, and what the file's size is a multiple of: a huge page."""
FILE_VERSION = 1
_HEADER_BYTES = 4096
_SAMPLE_BYTES = 512
_SAMPLE_EVERY = 1 << 20
"""Of the packed bytes, so many in each of these are in the header's digest: whole pieces that never reached the disk
are seen, at the price of a hundredth of a second for gigabytes."""


@dataclass(frozen=True)
class SharedWeights:
    """Where the packed weights of one model lie, or will."""

    folder: Path
    model: str
    """Name of the model's bytes: another name is another file."""
    place: str
    """Of the model's files, for people, and to find what an earlier version of them has left."""


def place_weights(
    native: _native.Executor,
    matrices: Mapping[str, int],
    weights: Mapping[str, LoadedWeight],
    shared: SharedWeights | None,
    report: PackReport,
) -> bool:
    """Gives an executor its weights: those of a file if they are shared, else memory of its own, packed here.

    Args:
        matrices: name -> index in the executor, of those that are its own, in the order in which they were added.

    Returns:
        Whether they are shared. Where the folder cannot take them they are not, and a warning says why.
    """
    if shared is not None and native.packed_bytes:
        try:
            _map(native, matrices, weights, shared, report)
            return True
        except OSError as error:
            log.warning(
                "weights are not shared: %s: %s; make room or point OCTAVO_CACHE elsewhere",
                shared.folder,
                error.strerror,
            )
    native.allocate_weights()
    pack_weights(native, matrices, weights, report)
    return False


def _map(
    native: _native.Executor,
    matrices: Mapping[str, int],
    weights: Mapping[str, LoadedWeight],
    shared: SharedWeights,
    report: PackReport,
) -> None:
    """
    Raises:
        OSError: the folder cannot be written, or its disk is full.
    """
    key = _key(matrices, weights, shared)
    path = shared.folder / f"{key}.weights"
    file = _open_sound(path, key, native.packed_bytes)
    if file is not None:
        with _closing(file):
            _map_file(native, file, matrices, report)
        return
    shared.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(str(shared.folder / f"{key}.lock")):
        file = _open_sound(path, key, native.packed_bytes)  # another process may have written it meanwhile
        if file is None:
            _write(native, matrices, weights, path, _Header(key, shared, native.packed_bytes), report)
            _remove_outdated(shared, path)
            file = _open_sound(path, key, native.packed_bytes)
        if file is None:
            raise OSError(0, "what was written there cannot be read back")
    with _closing(file):
        _map_file(native, file, matrices, None)


def _map_file(native: _native.Executor, file: int, matrices: Mapping[str, int], report: PackReport | None) -> None:
    """Maps a sound file and brings all of it into memory."""
    native.map_weights(file=file, offset=DATA_OFFSET)
    done = 0
    for batch in batches(native, matrices):
        native.fetch_weights(matrices[batch[0]], matrices[batch[-1]] + 1)
        done += sum(native.matrix_bytes(matrices[name]) for name in batch)
        if report is not None:
            report(done, native.packed_bytes)


# ---- names


def _key(matrices: Mapping[str, int], weights: Mapping[str, LoadedWeight], shared: SharedWeights) -> str:
    """Names what the file must hold. Bytes of each weight are in it, too: a conversion that has changed, or a file that
    was written over, is another model."""
    listed = [(name, weights[name].type.name, weights[name].shape, _sampled(weights[name])) for name in matrices]
    kinds = sorted({weights[name].type for name in matrices}, key=lambda kind: kind.ggml_id)
    packing = [(kind.name, _packing_of(kind)) for kind in kinds]
    named = ("packed weights", FILE_VERSION, sys.byteorder, shared.model, packing, listed)
    return hashlib.sha256(repr(named).encode()).hexdigest()[:40]


def _sampled(weight: LoadedWeight) -> str:
    digest = hashlib.sha256()
    size = weight.type.num_bytes(weight.shape)
    for start in (0, size // 2, max(0, size - _SAMPLE_BYTES)):
        digest.update(_bytes_of(weight, start, min(start + _SAMPLE_BYTES, size)))
    if weight.row_order is not None:
        digest.update(weight.row_order.tobytes())
    return digest.hexdigest()


def _bytes_of(weight: LoadedWeight, start: int, stop: int) -> bytes:
    """Of its stored rows, of which no others are converted."""
    width = weight.type.num_bytes(weight.shape[-1:])
    first = start // width
    rows = weight.rows(slice(first, -(-stop // width)))
    return rows.tobytes()[start - first * width : stop - first * width]


def _packing_of(kind: TensorType) -> str:
    """What packing makes of known bytes: names the packing without a number that somebody must remember to raise."""
    n, k = 40, 512
    raw = (np.arange(kind.num_bytes((n, k)), dtype=np.uint32) * 2654435761 >> 13).astype(np.uint8)
    native = _bare_executor()
    matrix = native.add_matrix(format=kind.ggml_id, n=n, k=k)
    packed = np.zeros(native.packed_bytes, np.uint8)
    native.pack([(matrix, raw, None, False)], out=packed)
    return hashlib.sha256(packed.tobytes()).hexdigest()


def _bare_executor() -> _native.Executor:
    memory = _native.KvMemory(num_blocks=1, block_size=1, layers_per_block=1, kv_dtype="fp16", layers=[])
    limits = {"max_tokens": 1, "max_rows": 1, "max_seqs": 1, "max_positions": 1, "vocab_size": 1}
    return _native.Executor(_native.ThreadPool(1), memory, isa="portable", **limits)


# ---- the file


@dataclass(frozen=True)
class _Header:
    key: str
    shared: SharedWeights
    num_bytes: int

    def encode(self, digest: str) -> bytes:
        fields = {"octavo": "packed weights", "version": FILE_VERSION, "key": self.key, "bytes": self.num_bytes}
        fields |= {"model": self.shared.model, "place": self.shared.place, "digest": digest}
        return json.dumps(fields).encode().ljust(_HEADER_BYTES)


def _file_bytes(num_bytes: int) -> int:
    return DATA_OFFSET + -(-num_bytes // DATA_OFFSET) * DATA_OFFSET


def _open_sound(path: Path, key: str, num_bytes: int) -> int | None:
    """A descriptor of the file if it is whole, ours, and what it is named for; None if there is none, or another."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    problem = _problem_of(file, key, num_bytes)
    if problem is None:
        return file
    os.close(file)
    log.warning("%s: %s; it is made anew", path, problem)
    return None


def _problem_of(file: int, key: str, num_bytes: int) -> str | None:
    status = os.fstat(file)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        return "others may write to it"
    if status.st_size != _file_bytes(num_bytes):
        return f"has {status.st_size} bytes, not {_file_bytes(num_bytes)}"
    header = _read_header(file)
    if header.get("key") != key or header.get("bytes") != num_bytes:
        return "is not what its name says"
    return None if header.get("digest") == _digest(file, num_bytes) else "was not written to its end"


def _read_header(file: int) -> dict[str, object]:
    """Its fields; none where there is no header."""
    try:
        fields = json.loads(os.pread(file, _HEADER_BYTES, 0))
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _digest(file: int, num_bytes: int) -> str:
    digest = hashlib.sha256()
    for at in range(0, num_bytes, _SAMPLE_EVERY):
        digest.update(os.pread(file, min(_SAMPLE_BYTES, num_bytes - at), DATA_OFFSET + at))
    return digest.hexdigest()


def _write(
    native: _native.Executor,
    matrices: Mapping[str, int],
    weights: Mapping[str, LoadedWeight],
    path: Path,
    header: _Header,
    report: PackReport,
) -> None:
    """Packs into a file of another name and renames it.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    staged = path.with_suffix(f".{os.getpid()}.part")
    try:
        file = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with _closing(file):
            os.posix_fallocate(file, 0, _file_bytes(header.num_bytes))
            _pack_into(native, matrices, weights, file, report)
            os.fdatasync(file)
            os.pwrite(file, header.encode(_digest(file, header.num_bytes)), 0)
            os.fsync(file)
        staged.rename(path)
    finally:
        staged.unlink(missing_ok=True)


def _pack_into(
    native: _native.Executor,
    matrices: Mapping[str, int],
    weights: Mapping[str, LoadedWeight],
    file: int,
    report: PackReport,
) -> None:
    """In pieces of many megabytes: the system keeps them in large pages, which later mappings use."""
    done = 0
    for batch in batches(native, matrices):
        size = sum(native.matrix_bytes(matrices[name]) for name in batch)
        packed = np.zeros(size, np.uint8)
        native.pack([source(matrices[name], weights[name]) for name in batch], out=packed)
        _write_all(file, packed.data, DATA_OFFSET + done)
        done += size
        report(done, native.packed_bytes)


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def _remove_outdated(shared: SharedWeights, kept: Path) -> None:
    """Removes what was packed from files that stood in the same place before. Who maps one keeps it until its end."""
    for path in shared.folder.glob("*.weights"):
        if path == kept:
            continue
        with path.open("rb") as file:
            header = _read_header(file.fileno())
        if header.get("place") == shared.place and header.get("model") != shared.model:
            path.unlink(missing_ok=True)


@contextmanager
def _closing(file: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(file)
