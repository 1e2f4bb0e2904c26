"""What a checkpoint says about itself: the plain data from which a family defines its program."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Naming(StrEnum):
    """Whose names the metadata keys and tensors carry; the values are the loader's names of the file formats."""

    GGUF = "gguf"
    HF = "safetensors"


@dataclass(frozen=True)
class CheckpointHeader:
    """Everything about a checkpoint but its weights."""

    path: str
    """For messages."""
    naming: Naming
    metadata: Mapping[str, object]
    """GGUF key-value pairs, or the contents of config.json."""
    shapes: Mapping[str, tuple[int, ...]]
    """Tensor name -> shape, slowest dimension first."""
    rope_factors: tuple[float, ...] | None = None
    """Values of the GGUF tensor `rope_freqs.weight`, a setting stored as a tensor: divisors of rotary frequencies."""
    short_rope_factors: tuple[float, ...] | None = None
    """Of `rope_factors_short.weight`: divisors for contexts within the one the model was first trained for."""
    long_rope_factors: tuple[float, ...] | None = None
    """Of `rope_factors_long.weight`: divisors for longer ones."""
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Tensors of whole numbers -> shape. They are no weights, and most models have none."""
    context: int | None = None
    """Longest context of this start; None: all that the model has. Rotary scalings that have two forms choose by it."""
