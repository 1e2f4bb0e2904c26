"""Loaded weights into the types of a recipe: what `octavo quantize` would have written, made while a model loads."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np

from octavo.execution.quant import TensorType, to_native
from octavo.execution.quant.convert import convert
from octavo.execution.quant.recipe import FLOATS, Recipe, Role, roles_of
from octavo.execution.weights import LoadedWeight
from octavo.model.program import Program


def requantized(
    program: Program, weights: Mapping[str, LoadedWeight], recipe: Recipe, threads: int
) -> dict[str, LoadedWeight]:
    """The weights of a program as the recipe wants them. Those that it leaves alone stay views of their file.

    Raises:
        UnsupportedModelError: a weight that its new type cannot hold.
    """
    roles = roles_of(program)
    with ThreadPoolExecutor(threads) as pool:
        return {name: _requantized(name, weight, recipe, roles[name], pool) for name, weight in weights.items()}


def _requantized(name: str, weight: LoadedWeight, recipe: Recipe, role: Role, pool: ThreadPoolExecutor) -> LoadedWeight:
    width = weight.shape[-1]
    target = recipe.type_for(role, width, weight.type)
    if target is weight.type:
        return weight
    weight = with_inputs_in_order(weight)
    raw = np.empty(target.num_bytes(weight.shape), np.uint8)
    rows, end = weight.raw.reshape(prod(weight.shape[:-1]), -1), 0
    for piece in convert(name, weight.type, rows, width, target, pool):
        raw[end : end + piece.nbytes] = piece
        end += piece.nbytes
    native, raw = to_native(target, raw, weight.shape)
    return LoadedWeight(native, weight.shape, raw, weight.row_order)


def with_inputs_in_order(weight: LoadedWeight) -> LoadedWeight:
    """The weight with the inputs of each row in their own order, as F32 where they were not: blocks of another format
    are of neighbours."""
    if weight.input_order is None:
        return weight
    raw = np.ascontiguousarray(weight.float32()).reshape(-1).view(np.uint8)
    return LoadedWeight(TensorType.F32, weight.shape, raw)


def quantised_types(program: Program, weights: Mapping[str, LoadedWeight]) -> set[TensorType]:
    """The types of those weights that a recipe may change, floats left out."""
    roles = roles_of(program)
    return {weight.type for name, weight in weights.items() if roles[name] is not Role.OTHER} - FLOATS
