"""What a model name resolves to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["gguf", "safetensors"]


@dataclass(frozen=True)
class ModelFiles:
    """A model on this disk."""

    name: str
    """As the user gave it."""
    kind: Kind
    folder: Path
    """Where config, tokenizer and templates lie beside the weights (safetensors)."""
    files: tuple[Path, ...]
    """The weights: all parts of a GGUF, all shards of a safetensors model, in order."""
    sha256: str | None
    """Of the one weight file, where it was fetched and verified."""
