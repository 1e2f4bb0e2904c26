"""A GGUF file in another number format: names, rows, metadata, tokenizer and template stay what they are."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod

from octavo.conversion.plan import GGUFPlan, Source
from octavo.execution.loader import Checkpoint
from octavo.execution.loader.gguf import encoded_metadata
from octavo.execution.loader.gguf_writer import FILE_TYPES, GGUFTensor, Value
from octavo.execution.quant.convert import convert
from octavo.execution.quant.recipe import Recipe, Role, roles_of, stronger
from octavo.execution.weights import checkpoint_header
from octavo.model.registry import define_model
from octavo.model.sources import ModelDefinition

_QUANTIZATION_VERSION = 2
"""Of ggml's block layouts."""
_OF_THE_OLD_FILE = ("split.", "general.alignment")
"""Keys that speak of how the old file was written."""


def plan_gguf_to_gguf(source: Source, checkpoint: Checkpoint, recipe: Recipe, pool: ThreadPoolExecutor) -> GGUFPlan:
    """The plan of one file, whole even if the old one is split.

    Raises:
        UnsupportedModelError, ModelFileError: the file is not one of a model that Octavo runs.
    """
    roles = tensor_roles(checkpoint)
    tensors = []
    for info in checkpoint.tensors.values():
        width = info.shape[-1]
        target = recipe.type_for(roles.get(info.name, Role.OTHER), width, info.type)
        rows = checkpoint.raw(info.name).reshape(prod(info.shape[:-1]), -1)
        tensors.append(
            GGUFTensor(info.name, target, info.shape, convert(info.name, info.type, rows, width, target, pool))
        )
    stored = {info.name: info.type for info in checkpoint.tensors.values()}
    kept = {
        key: value for key, value in encoded_metadata(source.files[0]).items() if not key.startswith(_OF_THE_OLD_FILE)
    }
    return GGUFPlan({**kept, **file_type_metadata(recipe)}, tensors, stored)


def file_type_metadata(recipe: Recipe) -> dict[str, Value]:
    """What files say about their number format as a whole."""
    return {
        "general.file_type": Value("u32", FILE_TYPES[recipe.weights.name]),
        "general.quantization_version": Value("u32", _QUANTIZATION_VERSION),
    }


def tensor_roles(checkpoint: Checkpoint) -> Mapping[str, Role]:
    """The role of each tensor that the checkpoint's program uses."""
    return roles_of_tensors(define_model(checkpoint_header(checkpoint)))


def roles_of_tensors(definition: ModelDefinition) -> dict[str, Role]:
    """The strongest role of the weights that each tensor holds."""
    roles: dict[str, Role] = {}
    for weight, role in roles_of(definition.program).items():
        tensor = definition.sources[weight].name
        roles[tensor] = stronger(roles.get(tensor, Role.OTHER), role)
    return roles
