"""Models that already lie on this disk: a folder, a file, the parts of a split file."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from octavo.errors import ModelFileError, ModelNotFoundError
from octavo.hub.files import Kind, ModelFiles

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_PICKLES = ("*.bin", "*.pt", "*.pth")
_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"


def local_model(name: str, path: Path) -> ModelFiles:
    """The model at `path`.

    Raises:
        ModelFileError: parts or shards are missing, or the file is of another kind.
        ModelNotFoundError: the folder holds no model, or several to choose from.
    """
    if path.is_dir():
        return _folder_model(name, path)
    if not path.is_file():
        raise ModelFileError("is no regular file; give a .gguf file or a Hugging Face folder", str(path))
    kind = _kind_of(path)
    files = gguf_parts(path) if kind == "gguf" else (path,)
    return ModelFiles(name, kind, path.parent, files, None)


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """All parts of the split file that `path` is a part of, in order; `path` alone where it is whole."""
    parts = tuple(path.with_name(part) for part in part_names(path.name))
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelFileError(f"parts are missing beside it: {', '.join(missing)}; put all in one folder", str(path))
    return parts


def part_names(file_name: str) -> list[str]:
    """`x-00002-of-00003.gguf` -> the names of all three parts; any other name -> itself."""
    match = _PART.fullmatch(file_name)
    if match is None:
        return [file_name]
    count = int(match["count"])
    return [f"{match['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def gguf_choices(paths: Sequence[str]) -> list[str]:
    """The GGUF models among `paths`, each by its first part."""
    by_model: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if path.endswith(".gguf"):
            match = _PART.fullmatch(path)
            by_model[match["stem"] if match else path].append(path)
    return sorted(min(parts) for parts in by_model.values())


def _folder_model(name: str, folder: Path) -> ModelFiles:
    shards = safetensors_shards(folder)
    if shards and (folder / "config.json").is_file():
        return ModelFiles(name, "safetensors", folder, shards, None)
    choices = gguf_choices([path.name for path in folder.glob("*.gguf")])
    if len(choices) == 1:
        return ModelFiles(name, "gguf", folder, gguf_parts(folder / choices[0]), None)
    if choices:
        raise ModelNotFoundError(f"{name}: several models in this folder, name one: {', '.join(choices)}")
    pickled = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickled and not shards:
        raise ModelNotFoundError(
            f"{name}: the weights in this folder are pickled ({pickled[0]}), and reading a pickle may run anybody's"
            " code; Octavo reads safetensors. torch.load(..., weights_only=True) and safetensors.torch.save_file"
            " make one of the other"
        )
    found = "*.safetensors, but no config.json" if shards else "neither *.safetensors nor *.gguf"
    raise ModelNotFoundError(f"{name}: the folder holds {found}; give a Hugging Face model folder or a .gguf file")


def safetensors_shards(folder: Path) -> tuple[Path, ...]:
    """The weight files of a Hugging Face folder: those of its index, else the one with the usual name, beside which
    others are the same weights under other names, else all. Raises where a shard is missing."""
    index, whole = folder / _INDEX, folder / _WHOLE
    if not index.is_file():
        return (whole,) if whole.is_file() else tuple(sorted(folder.glob("*.safetensors")))
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({Path(str(shard)).name for shard in weight_map.values()})
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ModelFileError(f"not a safetensors index ({error}); fetch it again", str(index)) from error
    missing = [shard for shard in names if not (folder / shard).is_file()]
    if missing:
        raise ModelFileError(f"missing shards: {', '.join(missing)}; fetch them into the same folder", str(index))
    return tuple(folder / shard for shard in names)


def _kind_of(path: Path) -> Kind:
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise ModelFileError(f"cannot be read ({error.strerror}); check its permissions", str(path)) from error
    if start[:4] == b"GGUF":
        return "gguf"
    if start[8:] == b"{":
        return "safetensors"
    raise ModelFileError(f"neither GGUF nor safetensors: it starts with {start[:8]!r}", str(path), 0)
