"""A model family as the registry sees it."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo.model.header import CheckpointHeader
from octavo.model.sources import ModelDefinition


@dataclass(frozen=True)
class Family:
    """The names that a family answers to, and the function that builds its program."""

    name: str
    gguf_architectures: tuple[str, ...]
    """Values of `general.architecture`."""
    hf_architectures: tuple[str, ...]
    """Values of `architectures[0]` in config.json."""
    hf_model_types: tuple[str, ...]
    """Values of `model_type`, asked only where a config names no architecture."""
    define: Callable[[CheckpointHeader], ModelDefinition]
    """Raises ModelFileError for missing or absurd settings, UnsupportedModelError for features it does not compute;
    both name the key."""
