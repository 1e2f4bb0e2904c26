"""Opening a model by what its files contain, never by what they are called."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from octavo.errors import ModelFileError
from octavo.execution.loader.checkpoint import Checkpoint, MappedCheckpoint
from octavo.execution.loader.gguf import open_gguf
from octavo.execution.loader.mapped_file import MappedFile
from octavo.execution.loader.safetensors import open_safetensors

_FOREIGN = {
    b"PK\x03\x04": "a zip archive (a PyTorch .bin or .pt checkpoint, or a wheel)",
    b"\x80\x02": "a Python pickle (a legacy PyTorch checkpoint)",
    b"version https://git-lfs": "a git-lfs pointer, not the file itself (run `git lfs pull`)",
    b"<": "an HTML or XML page (a failed download)",
    b"GGML": "a GGML file, the format before GGUF",
    b"ggjt": "a GGJT file, the format before GGUF",
    b"tjgg": "a GGJT file, the format before GGUF",
    b"\x7fELF": "a program",
    b"\x1f\x8b": "a gzip archive",
}


def open_checkpoint(files: Sequence[Path]) -> Checkpoint:
    """Opens the weight files of one model: GGUF (all parts of a split one) or safetensors (all shards).

    Raises:
        ModelFileError: a file is missing, truncated, malformed or of another kind; says which, where and what to do.
        UnsupportedModelError: a sound file with a tensor type that Octavo does not read.
    """
    _require_some(files)
    first = MappedFile(Path(files[0]))
    return _opener(first)([Path(f) for f in files])


def open_with_integers(files: Sequence[Path], names: Collection[str]) -> MappedCheckpoint:
    """Opens a safetensors model in which tensors of these names may hold whole numbers. Errors as `open_checkpoint`."""
    _require_some(files)
    first = MappedFile(Path(files[0]))
    if _opener(first) is not open_safetensors:
        raise first.bad(0, "a GGUF file is read here only as a whole model; this takes a folder of safetensors")
    return open_safetensors([Path(f) for f in files], names)


def _require_some(files: Sequence[Path]) -> None:
    if not files:
        raise ModelFileError("no model file was given; name a .gguf file or a folder with *.safetensors")


def _opener(file: MappedFile) -> Callable[[Sequence[Path]], Checkpoint]:
    start = file.data[:64]
    if start.startswith(b"GGUF"):
        return open_gguf
    if start[8:9] == b"{":
        return open_safetensors
    kind = next((name for magic, name in _FOREIGN.items() if start.startswith(magic)), "neither GGUF nor safetensors")
    raise file.bad(0, f"this is {kind}, starting with {start[:8]!r}; Octavo reads GGUF and safetensors files")
