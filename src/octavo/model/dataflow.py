"""Which buffers and weights an op touches: for passes, listings and readers that run part of a program."""

from octavo.model.program import (
    Activate,
    Add,
    Attention,
    CacheWrite,
    Embed,
    EmbedPositions,
    Experts,
    GatedActivation,
    LayerNorm,
    Linear,
    Logits,
    Op,
    Program,
    RmsNorm,
    Rope,
    Route,
    Scale,
    SelectRows,
    SigmoidScale,
)

_READS: dict[type[Op], tuple[str, ...]] = {
    Embed: (),
    EmbedPositions: (),
    Linear: ("x",),
    RmsNorm: ("x",),
    LayerNorm: ("x",),
    Rope: ("x",),
    CacheWrite: ("k", "v"),
    Attention: ("q",),
    GatedActivation: ("gate", "up"),
    Activate: ("x",),
    Route: ("logits",),
    Experts: ("x", "routes"),
    SigmoidScale: ("x", "gate"),
    Add: ("x", "y"),
    Scale: ("x",),
    SelectRows: ("x",),
    Logits: ("x",),
}
"""Fields of each op that name the buffers it reads."""

_IN_PLACE = (Rope,)
"""Ops that write the buffer they read."""

_WEIGHTS: dict[type[Op], tuple[str, ...]] = {
    Embed: ("weight",),
    EmbedPositions: ("weight",),
    Linear: ("weight", "bias"),
    RmsNorm: ("weight",),
    LayerNorm: ("weight", "bias"),
    Experts: ("gate", "up", "down"),
    Logits: ("weight",),
}
"""Fields of each op that name weights, one or many, where it has any."""


def reads(op: Op) -> tuple[str, ...]:
    """Buffers whose contents the op uses, in the order of its fields."""
    return tuple(vars(op)[field] for field in _READS[type(op)])


def writes(op: Op) -> str | None:
    """The buffer the op writes; None for ops that write cache only."""
    if isinstance(op, _IN_PLACE):
        return op.x
    written: str | None = vars(op).get("out")
    return written


def weights_of(op: Op) -> tuple[str, ...]:
    """Names of the weights the op uses."""
    fields = (vars(op)[field] for field in _WEIGHTS.get(type(op), ()))
    return tuple(name for field in fields for name in _names(field))


def _names(field: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if field is None:
        return ()
    return (field,) if isinstance(field, str) else field


def multiplied_weight(op: Op) -> str | None:
    """The matrix, or for experts the first of those, that decides what numbers an op multiplies; None: it has none."""
    if isinstance(op, Experts):
        return op.gate[0]
    return op.weight if isinstance(op, Linear | Logits) else None


def most_positions(program: Program) -> int | None:
    """Positions that every table of learned positions has; None: the program has no such table, so only its training
    bounds its context."""
    tables = (op.weight for op in program.ops if isinstance(op, EmbedPositions))
    return min((program.weights[table].shape[0] for table in tables), default=None)


def row_ops(program: Program) -> tuple[Op, ...]:
    """The ops that work on the wanted rows only: they may run again for other rows of the same step."""
    return tuple(op for op in program.ops if (out := writes(op)) is not None and program.buffers[out].dim == "rows")


def row_ops_of(program: Program, role: str) -> tuple[Op, ...]:
    """The row ops as far as one output over `rows` needs them: all up to the last one that writes it.

    Raises:
        KeyError: the program has no such output.
    """
    buffer, ops = program.outputs[role], row_ops(program)
    last = max(index for index, op in enumerate(ops) if writes(op) == buffer)
    return ops[: last + 1]


def rows_source(program: Program) -> str:
    """The buffer of all tokens from which the wanted rows are taken: what every token of the step has come to.

    Raises:
        ValueError: the program selects no rows.
    """
    for op in program.ops:
        if isinstance(op, SelectRows):
            return op.x
    raise ValueError(f"program {program.name} selects no rows")
