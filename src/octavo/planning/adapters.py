"""Low-rank adapters (Hu et al. 2021) in slots: memory that is taken whether a slot is filled or not."""

from octavo.model.program import Split
from octavo.planning.shape import Layer, Matrix, ModelShape

KERNELS_PER_LINEAR = 2
"""Down to the rank, and up again."""


def adapted(layer: Layer) -> list[Matrix]:
    """The linears of a layer that adapters stand on: those that are cut; a router is not."""
    return [matrix for matrix in layer.matrices if matrix.split is not Split.REPLICATED]


def elements_per_rank(layer: Layer, tp: int = 1) -> int:
    """Of A and B of one layer and one unit of rank on one device. The half on the cut side of its linear is cut with
    it, the other one stands on every device."""
    return sum(matrix.num_experts * _elements(matrix, tp) for matrix in adapted(layer))


def slot_bytes(shape: ModelShape, *, num_slots: int, rank: int, value_bytes: int, tp: int) -> int:
    """On one device. Slots are taken at start: an empty one costs as much as a full one."""
    per_rank = sum(elements_per_rank(layer, tp) for layer in shape.layers)
    return per_rank * rank * value_bytes * num_slots


def num_launches(shape: ModelShape) -> int:
    """Kernels per step that adapters add, if each linear has its own. Engines that pack q, k, v and gate, up into one
    linear each have fewer."""
    return KERNELS_PER_LINEAR * sum(len(adapted(layer)) for layer in shape.layers)


def flops_share(shape: ModelShape, rank: int, num_parameters: int) -> float:
    """What adapters add to the arithmetic of a token, on one device that holds everything."""
    return rank * sum(elements_per_rank(layer) for layer in shape.layers) / num_parameters


def rank_share(rank: int, hidden_size: int) -> float:
    """The rank over the width: what an adapter adds to one square linear's half, often taken for the whole."""
    return rank / hidden_size


def _elements(matrix: Matrix, tp: int) -> int:
    if matrix.split is Split.COLUMN:
        return matrix.inputs + matrix.outputs // tp
    return matrix.inputs // tp + matrix.outputs
