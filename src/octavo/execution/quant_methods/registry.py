"""From `quantization_config` to the method that reads the weights.

Plug-ins add methods by an entry point in the group `octavo.quant_methods` that names an object with the members of
`QuantMethod`; they are asked for only when no built-in method has the name.
"""

from importlib.metadata import entry_points

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.execution.loader import Checkpoint
from octavo.execution.loader.safetensors import QUANTISATION_KEYS
from octavo.execution.quant_methods.awq import Awq
from octavo.execution.quant_methods.compressed_tensors import CompressedTensors
from octavo.execution.quant_methods.float8 import Fp8
from octavo.execution.quant_methods.gptq import Gptq
from octavo.execution.quant_methods.kv_scales import kv_scales
from octavo.execution.quant_methods.matrices import PackedWeights
from octavo.execution.quant_methods.method import QuantMethod
from octavo.execution.quant_methods.tensors import Tensors
from octavo.model.fields import Fields

BUILT_IN: tuple[QuantMethod, ...] = (Awq(), Gptq(), CompressedTensors(), Fp8())
ENTRY_POINT_GROUP = "octavo.quant_methods"
_INSTEAD = {
    "bitsandbytes": "its 4-bit codes are indices into a table under scales that are quantised themselves",
    "gguf": "load the .gguf file itself",
    "auto-round": "that tool also writes the format auto_gptq or auto_awq",
}
"""What to say of methods that people may come with."""


def packed_weights(checkpoint: Checkpoint) -> PackedWeights:
    """How the quantised weights of a checkpoint stand in it; none where its metadata speaks of no quantisation.

    Raises:
        UnsupportedModelError: a method, or a setting of it, that Octavo does not read; tensors of codes left over.
        ModelFileError: tensors that do not fit the settings.
    """
    key = next((key for key in QUANTISATION_KEYS if checkpoint.metadata.get(key) is not None), None)
    if key is None or checkpoint.format != "safetensors":
        return PackedWeights({})
    path = _path(checkpoint)
    config = Fields(f"{path}: config.json", checkpoint.metadata).nested(key)
    tensors = Tensors(checkpoint, path)
    found = _method(config).find(config, tensors)
    found = PackedWeights(found.weights, found.spare | kv_scales(tensors))
    _check_left_over(checkpoint, found, path)
    return found


def _path(checkpoint: Checkpoint) -> str:
    files = [info.file for info in checkpoint.tensors.values()]
    files += [info.file for info in checkpoint.code_tensors.values()]
    return str(files[0]) if files else "checkpoint"


def _method(config: Fields) -> QuantMethod:
    name = config.text("quant_method", default="").lower()
    known = _by_name(BUILT_IN)
    if name not in known:
        known |= _by_name(_plugged_in())
    if name not in known:
        hint = f" ({_INSTEAD[name]})" if name in _INSTEAD else ""
        problem = f"quant_method={name!r:.80} is not one that Octavo reads{hint}" if name else "lacks quant_method"
        raise UnsupportedModelError(
            f"{config.path}: {problem}; it reads {', '.join(sorted(known))}. Take the model in one of these, or"
            " unquantised with --quantization"
        )
    return known[name]


def _by_name(methods: tuple[QuantMethod, ...]) -> dict[str, QuantMethod]:
    return {name: method for method in methods for name in method.names}


def _plugged_in() -> tuple[QuantMethod, ...]:
    return tuple(point.load() for point in entry_points(group=ENTRY_POINT_GROUP))


def _check_left_over(checkpoint: Checkpoint, found: PackedWeights, path: str) -> None:
    hidden = found.hidden
    left = [info for name, info in checkpoint.code_tensors.items() if name not in hidden]
    if left:
        listed = ", ".join(f"{info.name} ({info.stored})" for info in left[:4])
        raise ModelFileError(
            f"{path}: holds codes that no quantised weight is made of: {listed}{' and others' if left[4:] else ''}."
            " quantization_config in config.json does not fit this file: fetch both again from one place"
        )
