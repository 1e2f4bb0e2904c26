"""Where packed weights go: memory of the engine's own, or files that all engines of the machine map."""

from pathlib import Path

from octavo.config import EngineConfig
from octavo.engine.executors import WeightPlaces
from octavo.engine.fingerprint import weights_name
from octavo.engine.quantization import quantised_name
from octavo.engine.second_model import SecondModel
from octavo.execution.native.pack_weights import PackReport
from octavo.execution.native.shared_weights import SharedWeights
from octavo.hub.cache import default_root
from octavo.hub.files import ModelFiles


def weight_places(
    config: EngineConfig, files: ModelFiles, second: SecondModel | None, report: PackReport
) -> WeightPlaces:
    """As `weights` asks.

    Args:
        report: told how far the packing is.
    """
    if config.execution.weights == "private":
        return WeightPlaces(report=report)
    folder, quantization = default_root() / "packed", config.model.quantization
    model = quantised_name(weights_name(files, lasting=False), quantization)
    place = str(files.files[0]) + (f" as {quantization}" if quantization else "")
    return WeightPlaces(SharedWeights(folder, model, place), _place_of_second(folder, second), report)


def _place_of_second(folder: Path, second: SecondModel | None) -> SharedWeights | None:
    if second is None:
        return None
    tensor = next(iter(second.checkpoint.tensors.values()))
    return SharedWeights(folder, second.weights_name, str(tensor.file))
