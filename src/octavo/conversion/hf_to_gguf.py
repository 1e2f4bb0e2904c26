"""A Hugging Face folder as a GGUF file: other names, other keys, the same program."""

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from octavo.conversion.gguf_rows import FileTensor, Part, file_tensor
from octavo.conversion.gguf_settings import architecture_of, model_settings, rotary_divisors
from octavo.conversion.gguf_shapes import telling_shapes
from octavo.conversion.gguf_to_gguf import file_type_metadata, roles_of_tensors
from octavo.conversion.gguf_tokenizer import tokenizer_metadata
from octavo.conversion.plan import GGUFPlan, Source
from octavo.conversion.verify import program_difference
from octavo.errors import UnsupportedModelError
from octavo.execution.loader import Checkpoint
from octavo.execution.loader.gguf_writer import GGUFTensor, Value
from octavo.execution.quant import TensorType
from octavo.execution.quant.recipe import Recipe, Role
from octavo.execution.weights import LoadedWeight, load_model
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Program
from octavo.model.registry import define_model
from octavo.model.sources import ModelDefinition

_ROPE_FREQS = "rope_freqs.weight"


def plan_hf_to_gguf(source: Source, checkpoint: Checkpoint, recipe: Recipe, pool: ThreadPoolExecutor) -> GGUFPlan:
    """The plan of one file.

    Raises:
        UnsupportedModelError, ModelFileError: the folder is not one of a model that Octavo runs, or GGUF files, as
            Octavo writes them, cannot say all of it.
    """
    program, weights = load_model(checkpoint)
    config = dict(checkpoint.metadata)
    architecture = architecture_of(source.name, config)
    divisors = rotary_divisors(architecture, config, program.ropes[0]) if program.ropes else None
    settings = {
        "general.architecture": Value("str", architecture),
        "general.type": Value("str", "model"),
        "general.name": Value("str", str(config.get("_name_or_path") or source.folder.resolve().name)),
        **model_settings(architecture, config, program),
    }
    definition = _definition(source, settings, program, divisors)
    tensors = _tensors(definition, weights)
    roles = roles_of_tensors(definition)
    planned = [_planned(tensor, roles[tensor.name], recipe, pool) for tensor in tensors]
    stored = {tensor.name: tensor.stored for tensor in tensors}
    if divisors is not None:
        planned.append(_table(divisors))
        stored[_ROPE_FREQS] = TensorType.F32
    tokenizer = tokenizer_metadata(source.folder, program.vocab_size)
    return GGUFPlan({**settings, **file_type_metadata(recipe), **tokenizer}, planned, stored)


def _definition(
    source: Source, settings: Mapping[str, Value], program: Program, divisors: tuple[float, ...] | None
) -> ModelDefinition:
    """What a reader of the new file will compute.

    Raises:
        UnsupportedModelError: it is not what the folder says.
    """
    header = CheckpointHeader(source.name, Naming.GGUF, _as_read(settings), telling_shapes(program), divisors)
    try:
        definition = define_model(header)
    except UnsupportedModelError as error:
        raise _refused(source, str(error)) from error
    difference = program_difference(program, definition.program)
    if difference is not None:
        raise _refused(source, difference)
    return definition


def _refused(source: Source, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{source.name}: GGUF keys, as Octavo writes them, would make another model of it ({reason}); quantise it while"
        " it loads (--quantization), or write --format safetensors"
    )


def _as_read(settings: Mapping[str, Value]) -> dict[str, Any]:
    """Values as a reader has them: numbers of 32 bits, arrays as tuples."""
    read: dict[str, Any] = {}
    for key, value in settings.items():
        single = float(np.float32(value.value)) if value.type == "f32" else value.value
        read[key] = tuple(single) if isinstance(single, list) else single
    return read


def _tensors(definition: ModelDefinition, weights: Mapping[str, LoadedWeight]) -> list[FileTensor]:
    """In the order of the program."""
    parts: dict[str, list[Part]] = defaultdict(list)
    for name, where in definition.sources.items():
        parts[where.name].append(Part(weights[name], where.transform))
    return [file_tensor(name, together) for name, together in parts.items()]


def _planned(tensor: FileTensor, role: Role, recipe: Recipe, pool: ThreadPoolExecutor) -> GGUFTensor:
    target = recipe.type_for(role, tensor.shape[-1], tensor.stored)
    return GGUFTensor(tensor.name, target, tensor.shape, tensor.data(target, pool))


def _table(divisors: tuple[float, ...]) -> GGUFTensor:
    values = np.array(divisors, np.float32)
    return GGUFTensor(_ROPE_FREQS, TensorType.F32, values.shape, [values.view(np.uint8)])
