"""Which weight of a model is quantised to which type: one rule for files that are written and for models that are
quantised while they load, so that both compute the same tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from octavo.errors import ConfigError
from octavo.execution.quant.types import TensorType
from octavo.model.dataflow import weights_of
from octavo.model.program import Embed, Experts, Linear, Logits, Op, Program, Split

TYPES = ("q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "q3_k", "q2_k", "f16", "bf16", "f32")
"""What a model can be quantised to, by the names that users write."""

FLOATS = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})

FALLBACKS: Mapping[TensorType, TensorType] = {
    TensorType.Q2_K: TensorType.IQ4_NL,
    TensorType.Q3_K: TensorType.IQ4_NL,
    TensorType.Q4_K: TensorType.Q5_0,
    TensorType.Q5_K: TensorType.Q5_1,
    TensorType.Q6_K: TensorType.Q8_0,
}
"""For rows that are whole blocks of 32, but not of 256: the next type that loses no more. Rows that are no whole blocks
of 32 either become F16."""

OUTPUT_FLOOR = TensorType.Q6_K
"""The matrix that gives the logits (with tied embeddings the table, too) is held in at least this, as is usual: each of
its errors is one of a logit."""


CLOSING_TYPES: Mapping[TensorType, TensorType] = {TensorType.Q2_K: TensorType.Q3_K}
"""Types that are too coarse for matrices that close a block -> what these get."""


class Role(Enum):
    """What a program uses a weight for."""

    MATRIX = "matrix"
    CLOSING = "closing"
    """A matrix that closes a block: its product is added to what the layers hand on, and nothing comes after it that
    could even out its errors."""
    OUTPUT = "output"
    EMBEDDING = "embedding"
    OTHER = "other"
    """Norms, biases, tables of positions, routers: they are small, and stay what they are."""


_ROLES: dict[type[Op], Role] = {Logits: Role.OUTPUT, Embed: Role.EMBEDDING}
_LINEARS = {Split.COLUMN: Role.MATRIX, Split.ROW: Role.CLOSING, Split.REPLICATED: Role.OTHER}
"""Matrices that close a block are those whose inputs are split between devices; those that every device holds whole are
routers, and switches of experts."""
_ORDER = (Role.OTHER, Role.EMBEDDING, Role.MATRIX, Role.CLOSING, Role.OUTPUT)
"""Of several uses of a weight the last here counts."""


def roles_of(program: Program) -> dict[str, Role]:
    """The role of each weight of a program."""
    roles = dict.fromkeys(program.weights, Role.OTHER)
    for op in program.ops:
        for name, role in _uses(op):
            if len(program.weights[name].shape) > 1:
                roles[name] = stronger(roles[name], role)
    return roles


def _uses(op: Op) -> Iterator[tuple[str, Role]]:
    """The weights of an op, and what they are if they are matrices."""
    if isinstance(op, Experts):
        yield from ((name, Role.MATRIX) for name in (*op.gate, *op.up))
        yield from ((name, Role.CLOSING) for name in op.down)
        return
    role = _LINEARS[op.split] if isinstance(op, Linear) else _ROLES.get(type(op), Role.OTHER)
    yield from ((name, role) for name in weights_of(op))


def stronger(one: Role, other: Role) -> Role:
    """The role that decides about a weight with both."""
    return max(one, other, key=_ORDER.index)


@dataclass(frozen=True)
class Recipe:
    """A wish for a whole model."""

    weights: TensorType
    output: TensorType | None = None
    """Of the matrix that gives the logits; None: `weights`, but at least `OUTPUT_FLOOR`."""
    embedding: TensorType | None = None
    """Of the token embedding where it is not the output matrix, too; None: `weights`."""

    def type_for(self, role: Role, width: int, stored: TensorType) -> TensorType:
        """The type of a weight with rows of `width`, which is in `stored` now.

        A weight that is quantised to as few bits already stays as it is: more bits would bring nothing back.
        """
        if role is Role.OTHER:
            return stored
        wanted = fitting(self._wanted(role), width)
        keeps = wanted not in FLOATS and stored not in FLOATS and stored.bits_per_weight <= wanted.bits_per_weight
        return stored if keeps else wanted

    def _wanted(self, role: Role) -> TensorType:
        if role is Role.EMBEDDING:
            return self.embedding or self.weights
        if role is Role.MATRIX:
            return self.weights
        if role is Role.CLOSING:
            return CLOSING_TYPES.get(self.weights, self.weights)
        return self.output or max(self.weights, OUTPUT_FLOOR, key=lambda kind: kind.bits_per_weight)


def fitting(tensor_type: TensorType, width: int) -> TensorType:
    """`tensor_type`, or what stands in for it where rows of `width` weights are no whole blocks of it."""
    while width % tensor_type.block_size:
        tensor_type = FALLBACKS.get(tensor_type, TensorType.F16)
    return tensor_type


def named_type(field: str, name: str) -> TensorType:
    """The type that a user names.

    Raises:
        ConfigError: there is none of this name; `field` is where it was written.
    """
    if name.lower() not in TYPES:
        raise ConfigError(field, name, f"must be one of {', '.join(TYPES)}")
    return TensorType[name.upper()]
