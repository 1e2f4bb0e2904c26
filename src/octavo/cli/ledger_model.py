"""The model that `octavo ledger` is asked about: a shipped config, a config.json, a model's files, or one in the
cache. Nothing is fetched: arithmetic needs no weights."""

from collections.abc import Sequence
from pathlib import Path

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.loader.json_file import read_json_object
from octavo.execution.weights import checkpoint_header
from octavo.hub import resolve
from octavo.model.header import CheckpointHeader, Naming
from octavo.planning.models import PricedModel, StoredWeights, priced_model, shipped_model, shipped_models

_CONFIG = "config.json"


def model_named(name: str, weights: str | None = None) -> PricedModel:
    """The model of a name.

    Args:
        weights: a number format to price instead of the model's own.

    Raises:
        ModelError: there is no such model here, or its files are at fault.
        ConfigError: the weights' format is unknown.
    """
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        return _of_config(path, name, weights)
    if path.is_dir() and (path / _CONFIG).is_file() and not any(path.glob("*.safetensors")):
        return _of_config(path / _CONFIG, name, weights)
    if name in shipped_models() and not path.exists():
        return shipped_model(name, weights)
    return _of_files(_files(name), name, weights)


def _of_config(path: Path, name: str, weights: str | None) -> PricedModel:
    header = CheckpointHeader(path=str(path), naming=Naming.HF, metadata=read_json_object(path), shapes={})
    return priced_model(header, name, weights=weights)


def _files(name: str) -> Sequence[Path]:
    try:
        return resolve(name, offline=True).files
    except (DownloadError, ModelNotFoundError) as error:
        known = ", ".join(shipped_models())
        problem = f"{error}. Without files the ledger knows {known}, and reads any config.json or .gguf file"
        raise ModelNotFoundError(problem) from None


def _of_files(files: Sequence[Path], name: str, weights: str | None) -> PricedModel:
    checkpoint = open_checkpoint(files)
    return priced_model(checkpoint_header(checkpoint), name, _stored(checkpoint), weights)


def _stored(checkpoint: Checkpoint) -> StoredWeights:
    tensors = checkpoint.tensors.values()
    codes = checkpoint.code_tensors.values()
    integers = sum(tensor.nbytes for tensor in tensors if not tensor.type.is_float)
    integers += sum(tensor.nbytes for tensor in codes if tensor.stored != "F8_E4M3")
    total = sum(tensor.nbytes for tensor in tensors) + sum(tensor.nbytes for tensor in codes)
    return StoredWeights(total, is_integer=2 * integers > total)
