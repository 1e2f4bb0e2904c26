"""Features: what a target model computes at every token for a draft head beside it. Passes over the target's program.

Both add the output `features`, rows over all tokens of the step, and change no bit of anything else.
"""

from collections.abc import Sequence
from dataclasses import replace

from octavo.model.dataflow import rows_source, writes
from octavo.model.program import Add, Attention, Buffer, LayerNorm, Linear, Op, Program, RmsNorm, SelectRows, Weight

FEATURES = "features"
"""The output, and its buffer."""
_TERM = "features.term"


def num_layers(program: Program) -> int:
    """Layers of a decoder: each has one attention."""
    return sum(isinstance(op, Attention) for op in program.ops)


def hidden_size(program: Program) -> int:
    """Width of what runs through a decoder's layers."""
    return program.buffers[rows_source(program)].width


def with_normed_features(program: Program) -> Program:
    """Features are the final hidden states, after the last norm: those that the logits are made of.

    Raises:
        ValueError: the program norms no selected rows.
    """
    stream, norm = rows_source(program), _final_norm(program)
    op = replace(norm, x=stream, out=FEATURES)
    return _extended(program, {num_layers(program): (op,)}, hidden_size(program), {})


def with_layer_features(
    program: Program, after: Sequence[int], weights: Sequence[str], width: int, *, bias: str | None = None
) -> Program:
    """Features are a projection of what runs through the model at several depths, side by side (EAGLE-3).

    `[x_a | x_b | x_c] @ W.T` is summed up while the layers run, `x_a @ W_a.T` right behind layer a, so nothing is kept.

    Args:
        after: behind how many layers each is taken; 0 is the embedding.
        weights: names of the parts `[width, hidden size]` of the projection, one each.
        bias: name of a vector `[width]`.
    """
    ops: dict[int, tuple[Op, ...]] = {}
    for index, (depth, weight) in enumerate(sorted(zip(after, weights, strict=True))):
        ops[depth] = ops.get(depth, ()) + _summed_up(rows_source(program), weight, bias, is_first=index == 0)
    shapes: dict[str, tuple[int, ...]] = {weight: (width, hidden_size(program)) for weight in weights}
    return _extended(program, ops, width, shapes if bias is None else {**shapes, bias: (width,)})


def _summed_up(stream: str, weight: str, bias: str | None, *, is_first: bool) -> tuple[Op, ...]:
    if is_first:
        return (Linear(x=stream, out=FEATURES, weight=weight, bias=bias),)
    return Linear(x=stream, out=_TERM, weight=weight), Add(x=FEATURES, y=_TERM, out=FEATURES)


def _extended(
    program: Program, ops: dict[int, tuple[Op, ...]], width: int, weights: dict[str, tuple[int, ...]]
) -> Program:
    """The program with ops put in behind so many layers."""
    places = {_behind(program, depth): added for depth, added in ops.items()}
    extended = [new for index, op in enumerate(program.ops) for new in (*places.get(index, ()), op)]
    names = {writes(op) for added in ops.values() for op in added}
    buffers = {name: Buffer(name, "tokens", width) for name in (FEATURES, _TERM) if name in names}
    return replace(
        program,
        ops=tuple(extended),
        buffers=program.buffers | buffers,
        weights=program.weights | {name: Weight(name, shape) for name, shape in weights.items()},
        outputs={**program.outputs, FEATURES: FEATURES},
    )


def _behind(program: Program, depth: int) -> int:
    """Index of the first op that runs when the stream has gone through so many layers: behind its last change before
    the next layer's attention, or before rows are selected."""
    ends = [i for i, op in enumerate(program.ops) if isinstance(op, Attention | SelectRows)]
    stream = rows_source(program)
    return 1 + max(i for i, op in enumerate(program.ops[: ends[depth]]) if writes(op) == stream)


def _final_norm(program: Program) -> RmsNorm | LayerNorm:
    selected = next(op.out for op in program.ops if isinstance(op, SelectRows))
    for op in program.ops:
        if isinstance(op, RmsNorm | LayerNorm) and op.x == selected:
            return op
    raise ValueError(f"program {program.name} norms no selected rows")
