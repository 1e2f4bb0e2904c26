"""The one call that writes a tiny model."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import ConfigError
from octavo.execution.loader.tiny.gguf_model import write_gguf_model
from octavo.execution.loader.tiny.hf_model import write_hf_model
from octavo.execution.loader.tiny.spec import FileFormat, TinyModel
from octavo.execution.loader.tiny.vocabulary import build_vocabulary
from octavo.execution.loader.tiny.weights import build_weights

_WRITERS = {"gguf": write_gguf_model, "safetensors": write_hf_model}


def write_tiny_model(
    path: Path,
    model: TinyModel | None = None,
    *,
    format: FileFormat = "gguf",  # noqa: A002 - the word for it
    shards: int = 1,
) -> Path:
    """Writes a valid model with random weights.

    The same `model` written in both formats describes the same function and the same vocabulary, each in its format's
    real conventions (names, row order, what is added to norms, config keys).

    Args:
        path: the `.gguf` file, or the folder of a safetensors model; folders are created.
        model: sizes and choices; default: a two-layer llama.
        format: `gguf` or `safetensors`.
        shards: number of files the weights are spread over.

    Returns:
        What to give as the model's name: the (first) file, or the folder.

    Raises:
        ConfigError: sizes that do not go together.
    """
    model = model if model is not None else TinyModel()
    weights = build_weights(model)
    if not 1 <= shards <= len(weights):
        raise ConfigError("shards", shards, f"must be in [1, {len(weights)}], the number of tensors")
    return _WRITERS[format](Path(path), model, build_vocabulary(model), weights, shards)
