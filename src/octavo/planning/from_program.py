"""The shape of a model that Octavo runs: read off its program, so that what is priced is what runs."""

import re
from collections import defaultdict
from math import prod

from octavo.kv.spec import AttentionSpec
from octavo.model.program import Attention, Embed, EmbedPositions, Linear, Logits, Program
from octavo.planning.shape import Layer, Matrix, ModelShape, Pricing

_OF_A_LAYER = re.compile(r"layers\.(\d+)\.(.+)")


def shape_of_program(program: Program, name: str, architecture: str) -> ModelShape:
    """The shape of a decoder's program.

    Raises:
        ValueError: the program is no decoder with one attention per layer: a mistake of its family.
    """
    matrices, norms = _matrices(program), _norm_parameters(program)
    attentions = [op for op in program.ops if isinstance(op, Attention)]
    if sorted(matrices) != list(range(len(attentions))):
        raise ValueError(f"program {program.name}: {len(attentions)} attentions for layers {sorted(matrices)}")
    table = next(program.weights[op.weight] for op in program.ops if isinstance(op, Embed))
    return ModelShape(
        name=name,
        architecture=architecture,
        priced_by=Pricing.PROGRAM,
        vocab_size=program.vocab_size,
        hidden_size=table.shape[1],
        max_positions=program.max_positions,
        layers=tuple(_layer(program, op, tuple(matrices[index]), norms[index]) for index, op in enumerate(attentions)),
        num_final_norm_parameters=norms[None],
        tied_embeddings=any(isinstance(op, Logits) and op.weight == table.name for op in program.ops),
        num_position_parameters=_position_parameters(program),
        program=program,
    )


def _layer(program: Program, op: Attention, matrices: tuple[Matrix, ...], num_norm_parameters: int) -> Layer:
    cache = program.cache_layers[op.layer]
    return Layer(
        cache=AttentionSpec(num_kv_heads=cache.kv_heads, head_dim=cache.head_dim, window=cache.window),
        num_heads=op.heads,
        key_dim=cache.head_dim,
        value_dim=cache.head_dim,
        matrices=matrices,
        num_norm_parameters=num_norm_parameters,
    )


def _matrices(program: Program) -> dict[int, list[Matrix]]:
    found: dict[int, list[Matrix]] = defaultdict(list)
    for op in program.ops:
        place = _OF_A_LAYER.fullmatch(op.weight) if isinstance(op, Linear) else None
        if isinstance(op, Linear) and place is not None:
            outputs, inputs = program.weights[op.weight].shape
            matrix = Matrix(name=place[2], inputs=inputs, outputs=outputs, split=op.split, has_bias=op.bias is not None)
            found[int(place[1])].append(matrix)
    return found


def _position_parameters(program: Program) -> int:
    return sum(prod(program.weights[op.weight].shape) for op in program.ops if isinstance(op, EmbedPositions))


def _norm_parameters(program: Program) -> dict[int | None, int]:
    """Vectors that are no bias, by layer; None: those behind the last layer."""
    biases = {op.bias for op in program.ops if isinstance(op, Linear)}
    found: dict[int | None, int] = defaultdict(int)
    for weight in program.weights.values():
        if len(weight.shape) == 1 and weight.name not in biases:
            place = _OF_A_LAYER.fullmatch(weight.name)
            found[None if place is None else int(place[1])] += prod(weight.shape)
    return found
