"""The folder that holds fetched models.

<root>/models/<entry>/      one fetched model and its `.octavo.json`; appears by one rename, complete or not at all
<root>/staging/<entry>/     what a fetch has so far, by source; a later fetch goes on from here
<root>/locks/<entry>.lock   held while an entry is fetched
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from octavo.errors import DownloadError
from octavo.hub.files import Kind, ModelFiles
from octavo.hub.progress import Progress

_MANIFEST = ".octavo.json"
_HASH_CHUNK_BYTES = 1 << 20


class CacheError(DownloadError):
    """The cache folder cannot take the model (full, unwritable): no other source can help."""


@dataclass(frozen=True)
class CachedFile:
    """A file of an entry as it was verified."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Entry:
    """A complete model in the cache; stored beside it as `.octavo.json`."""

    source: str
    kind: Kind
    weights: tuple[CachedFile, ...]
    others: tuple[CachedFile, ...] = ()


class Cache:
    """One cache folder. Several processes may use it at one time."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        """Where the complete entry lies, or would."""
        return self.root / "models" / key

    def staging(self, key: str, source: str) -> Path:
        """The folder for what one source of an entry has sent so far, created."""
        path = self.root / "staging" / key / cache_key(source)
        make_folder(path)
        return path

    def find(self, key: str) -> Entry | None:
        """The entry if it is complete: its manifest reads, and all files have their size."""
        try:
            stored = json.loads((self.folder(key) / _MANIFEST).read_text(encoding="utf-8"))
            entry = _entry_from_json(stored)
        except (FileNotFoundError, NotADirectoryError, ValueError, LookupError, TypeError):
            return None
        complete = all(self._has_size(key, file) for file in entry.weights + entry.others)
        return entry if complete else None

    def model_files(self, key: str, name: str, entry: Entry) -> ModelFiles:
        """A complete entry as the answer to `name`."""
        folder = self.folder(key)
        sha256 = entry.weights[0].sha256 if len(entry.weights) == 1 else None
        return ModelFiles(name, entry.kind, folder, tuple(folder / file.name for file in entry.weights), sha256)

    def is_intact(self, key: str, entry: Entry) -> bool:
        """Reads all files and compares their hashes."""
        return all(sha256_of(self.folder(key) / file.name) == file.sha256 for file in entry.weights + entry.others)

    def publish(self, key: str, staging: Path, entry: Entry) -> None:
        """Turns a staging folder into the entry by one rename. The caller holds the lock."""
        folder = self.folder(key)
        with disk_errors(staging):
            (staging / _MANIFEST).write_text(json.dumps(asdict(entry), indent=1) + "\n", encoding="utf-8")
            self.remove(key)
            folder.parent.mkdir(parents=True, exist_ok=True)
            staging.rename(folder)
            shutil.rmtree(self.root / "staging" / key)

    def remove(self, key: str) -> None:
        """Forgets an entry, if it is there."""
        folder = self.folder(key)
        if folder.exists():
            shutil.rmtree(folder)

    @contextmanager
    def lock(self, key: str, progress: Progress) -> Iterator[None]:
        """One process at a time fetches an entry; others wait here, and are told so."""
        folder = self.root / "locks"
        make_folder(folder)
        lock = FileLock(str(folder / f"{key}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress.notice(f"another process is fetching {key}; waiting for it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _has_size(self, key: str, file: CachedFile) -> bool:
        path = self.folder(key) / file.name
        return path.is_file() and path.stat().st_size == file.size


def default_root() -> Path:
    """`$OCTAVO_CACHE`, else the platform's cache folder."""
    chosen = os.environ.get("OCTAVO_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_cache_dir("octavo"))


def cache_key(name: str) -> str:
    """A folder name for a model name: readable, and different for different names."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "--", name)
    return plain if plain == name else f"{plain[:80]}--{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def describe_file(path: Path, folder: Path) -> CachedFile:
    """A file of `folder` with its size and hash, for the manifest."""
    return CachedFile(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_of(path))


def sha256_of(path: Path) -> str:
    """The hash of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, or says why the cache cannot be there."""
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def require_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Raises CacheError where the disk of `folder` has less free."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise CacheError(
            f"{what} needs {_mb(needed_bytes)} on the disk of {folder}, {_mb(free)} are free; make room, or point "
            "OCTAVO_CACHE to another disk"
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns a full or unwritable disk into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full_disk(folder) from error
        raise CacheError(
            f"cannot write to the cache {folder} ({error.strerror}); point OCTAVO_CACHE to a folder you may write to"
        ) from error


def full_disk(folder: Path) -> CacheError:
    """The error for a disk that filled up meanwhile."""
    return CacheError(f"the disk of {folder} is full; make room, or point OCTAVO_CACHE to another disk")


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.0f} MB"


def _entry_from_json(stored: dict[str, object]) -> Entry:
    lists = {field: tuple(CachedFile(**file) for file in stored[field]) for field in ("weights", "others")}  # type: ignore[attr-defined]
    kind = stored["kind"]
    if kind not in ("gguf", "safetensors") or not lists["weights"]:
        raise ValueError(f"not a manifest: kind {kind!r}")
    return Entry(str(stored["source"]), kind, lists["weights"], lists["others"])
