"""The shape of a model that Octavo runs: read off its program, so that what is priced is what runs."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from octavo.kv.spec import AttentionSpec
from octavo.model.cost import num_active
from octavo.model.program import Attention, Embed, EmbedPositions, Experts, Linear, Logits, Op, Program, Split
from octavo.planning.shape import Layer, Matrix, ModelShape, Pricing

_OF_A_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
_FIRST_EXPERT = "experts.0."
"""One of all stands for them."""


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
        for weight, matrix in _matrices_of(op, program):
            place = _OF_A_LAYER.fullmatch(weight)
            if place is not None:
                found[int(place[1])].append(replace(matrix, name=place[2].replace(_FIRST_EXPERT, "")))
    return found


def _position_parameters(program: Program) -> int:
    return sum(prod(program.weights[op.weight].shape) for op in program.ops if isinstance(op, EmbedPositions))


def _matrices_of(op: Op, program: Program) -> Iterator[tuple[str, Matrix]]:
    """The weight of each linear, or of its first expert, and what it is."""
    match op:
        case Linear(weight=weight, split=split, bias=bias):
            yield weight, _matrix(program, weight, split, has_bias=bias is not None)
        case Experts(gate=gate, up=up, down=down):
            for names, split in ((gate, Split.COLUMN), (up, Split.COLUMN), (down, Split.ROW)):
                matrix = _matrix(program, names[0], split, has_bias=False)
                yield names[0], replace(matrix, num_experts=len(names), num_active=num_active(op, program))


def _matrix(program: Program, weight: str, split: Split, *, has_bias: bool) -> Matrix:
    outputs, inputs = program.weights[weight].shape
    return Matrix(name=weight, inputs=inputs, outputs=outputs, split=split, has_bias=has_bias)


def _norm_parameters(program: Program) -> dict[int | None, int]:
    """Vectors that are no bias, by layer; None: those behind the last layer."""
    biases = {op.bias for op in program.ops if isinstance(op, Linear)}
    found: dict[int | None, int] = defaultdict(int)
    for weight in program.weights.values():
        if len(weight.shape) == 1 and weight.name not in biases:
            place = _OF_A_LAYER.fullmatch(weight.name)
            found[None if place is None else int(place[1])] += prod(weight.shape)
    return found
