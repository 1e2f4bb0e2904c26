"""Parameters: how many, how many of them a token meets, and what they weigh on each device."""

from octavo.model.program import Split
from octavo.planning.shape import Layer, Matrix, ModelShape


def num_parameters(shape: ModelShape) -> int:
    """All values of all weights; tied tables count once."""
    layers = sum(layer.num_parameters for layer in shape.layers)
    tables = shape.num_tables * shape.num_embedding_parameters + shape.num_position_parameters
    return layers + tables + shape.num_final_norm_parameters


def num_active_parameters(shape: ModelShape) -> int:
    """Those that one token meets: without the experts that it is not routed to."""
    idle = sum(matrix.num_parameters - matrix.num_active_parameters for matrix in shape.matrices())
    return num_parameters(shape) - idle


def weight_bytes(parameters: float, bits_per_weight: float) -> float:
    """Bytes of so many values in one format, scales included in its bits."""
    return parameters * bits_per_weight / 8


def even_share(total: float, num_devices: int) -> float:
    """Of weights cut into equal parts: what is replicated (norms, biases of rows) is left out of account."""
    return total / num_devices


def num_parameters_per_device(shape: ModelShape, tp: int, pp: int = 1) -> int:
    """On the fullest device: matrices and tables of tokens are cut, the rest stands on every rank of its stage; the
    first stage holds the tables of tokens and of positions, the last one the output matrix and the final norm."""
    bounds = stage_bounds(shape.num_layers, pp)
    table = -(-shape.vocab_size // tp) * shape.hidden_size
    stages = [sum(_layer_on_device(layer, tp) for layer in shape.layers[first:last]) for first, last in bounds]
    stages[0] += table + shape.num_position_parameters
    stages[-1] += shape.num_final_norm_parameters
    if not shape.tied_embeddings or pp > 1:
        stages[-1] += table
    return max(stages)


def stage_bounds(num_layers: int, pp: int) -> list[tuple[int, int]]:
    """First layer and the one behind the last of each stage; the first stages take what does not divide."""
    sizes = [num_layers // pp + (stage < num_layers % pp) for stage in range(pp)]
    ends = [sum(sizes[: stage + 1]) for stage in range(pp)]
    return [(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _layer_on_device(layer: Layer, tp: int) -> int:
    return sum(_matrix_on_device(matrix, tp) for matrix in layer.matrices) + layer.num_norm_parameters


def _matrix_on_device(matrix: Matrix, tp: int) -> int:
    """A column split cuts the bias, too; a row split leaves it whole. Key and value heads that are fewer than the
    ranks are repeated, which the cut of the outputs does not see."""
    if matrix.split is Split.REPLICATED:
        return matrix.num_parameters
    bias = -(-matrix.num_bias_parameters // tp) if matrix.split is Split.COLUMN else matrix.num_bias_parameters
    return matrix.num_experts * (-(-matrix.inputs * matrix.outputs // tp) + bias)
