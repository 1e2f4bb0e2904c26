"""Loaded weights into the types of a recipe: what `octavo quantize` would have written, made while a model loads."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from octavo.execution.quant import TensorType, dequantize, native_type, to_native
from octavo.execution.quant.convert import convert
from octavo.execution.quant.recipe import FLOATS, Recipe, Role, roles_of
from octavo.execution.weight_parts import Bytes
from octavo.execution.weights import LoadedWeight, in_order
from octavo.model.program import Program


def requantized(
    program: Program, weights: Mapping[str, LoadedWeight], recipe: Recipe, threads: int
) -> dict[str, LoadedWeight]:
    """The weights of a program as the recipe wants them. Those that it leaves alone stay views of their file; others
    are converted when their rows are asked for, which raises UnsupportedModelError where a number is too large for the
    new type or none at all.
    """
    roles = roles_of(program)
    return {name: _requantized(name, weight, recipe, roles[name], threads) for name, weight in weights.items()}


def _requantized(name: str, weight: LoadedWeight, recipe: Recipe, role: Role, threads: int) -> LoadedWeight:
    width = weight.shape[-1]
    target = recipe.type_for(role, width, weight.type)
    if target is weight.type:
        return weight
    stored = with_inputs_in_order(weight)

    def converted(which: slice) -> Bytes:
        rows, end = stored.rows(which), 0
        raw = np.empty(target.num_bytes((len(rows), width)), np.uint8)
        with ThreadPoolExecutor(threads) as pool:
            for piece in convert(name, stored.type, rows, width, target, pool):
                raw[end : end + piece.nbytes] = piece
                end += piece.nbytes
        return to_native(target, raw, (len(rows), width))[1].reshape(len(rows), -1)

    return LoadedWeight(native_type(target), weight.shape, converted, weight.row_order)


def with_inputs_in_order(weight: LoadedWeight) -> LoadedWeight:
    """The weight with the inputs of each row in their own order, as F32 where they were not: blocks of another format
    are of neighbours."""
    order = weight.input_order
    if order is None:
        return weight

    def ordered(which: slice) -> Bytes:
        rows = weight.rows(which)
        return in_order(dequantize(weight.type, rows, (len(rows), len(order))), order).view(np.uint8)

    return LoadedWeight(TensorType.F32, weight.shape, ordered, weight.row_order)


def quantised_types(program: Program, weights: Mapping[str, LoadedWeight]) -> set[TensorType]:
    """The types of those weights that a recipe may change, floats left out."""
    roles = roles_of(program)
    return {weight.type for name, weight in weights.items() if roles[name] is not Role.OTHER} - FLOATS
