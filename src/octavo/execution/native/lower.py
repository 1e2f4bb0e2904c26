"""Lowering: from a program's plain ops to the sections of the native core, by passes that each do one thing.

No pass changes a bit of the result: sums are folded where the kernels add in the same order, and gathering ops only
decides what runs together.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from octavo.execution.native.stages import (
    FlatOp,
    LinearStage,
    Lowered,
    Quantize,
    Reorder,
    RowOp,
    RowSection,
    RowStage,
    Section,
    Segment,
    Softcap,
    WholeOp,
    access,
)
from octavo.execution.weights import LoadedWeight
from octavo.model.program import Add, Buffer, Dim, Linear, Logits, Op, Program

Order = npt.NDArray[np.int32]


def lower(program: Program, int8_weights: Collection[str], input_orders: Mapping[str, Order] | None = None) -> Lowered:
    """Lowers a program.

    Args:
        int8_weights: names of the weights whose linears take int8 activations.
        input_orders: of weights that hold their inputs in another order: place in a row -> input.
    """
    outputs = frozenset(program.outputs.values())
    orders, order_of = distinct_orders(input_orders or {})
    flat = [low for op in program.ops for low in expand(op)]
    flat = reorder_inputs(flat, order_of)
    flat = fold_adds(flat, outputs)
    flat = join_linears(flat)
    flat = quantize_inputs(flat, int8_weights)
    buffers = {**program.buffers, **reordered_buffers(flat, program.buffers)}
    sections = tuple(gather_sections(flat, buffers))
    return Lowered(sections, buffers, orders, find_local(sections) - outputs)


def lower_with(program: Program, weights: Mapping[str, LoadedWeight]) -> Lowered:
    """Lowers a program as these weights are stored."""
    int8_weights = {name for name, weight in weights.items() if not weight.type.is_float}
    orders = {name: weight.input_order for name, weight in weights.items() if weight.input_order is not None}
    return lower(program, int8_weights, orders)


def expand(op: Op) -> Iterator[FlatOp]:
    """One op of the program as native ops."""
    match op:
        case Linear(x=x, out=out, weight=weight, bias=bias):
            yield LinearStage(x, (Segment(weight, bias, out),))
        case Logits(x=x, out=out, weight=weight, softcap=softcap):
            yield LinearStage(x, (Segment(weight, None, out),))
            if softcap is not None:
                yield Softcap(out, softcap)
        case _:
            yield op


def distinct_orders(input_orders: Mapping[str, Order]) -> tuple[tuple[Order, ...], dict[str, int]]:
    """The orders that differ, and which of them each weight has: q, k and v share theirs as they share their input."""
    by_content: dict[bytes, int] = {}
    order_of = {name: by_content.setdefault(order.tobytes(), len(by_content)) for name, order in input_orders.items()}
    distinct = {number: input_orders[name] for name, number in order_of.items()}
    return tuple(distinct[number] for number in range(len(by_content))), order_of


def reorder_inputs(ops: Sequence[FlatOp], order_of: Mapping[str, int]) -> list[FlatOp]:
    """Lets a linear whose weight has another order read a reordered copy of its input, made once per content."""
    reordered: list[FlatOp] = []
    current: set[Reorder] = set()
    for op in ops:
        order = order_of.get(op.segments[0].weight) if isinstance(op, LinearStage) else None
        if isinstance(op, LinearStage) and order is not None:
            copy = Reorder(op.x, order, f"{op.x} in order {order}")
            if copy not in current:
                reordered.append(copy)
                current.add(copy)
            op = LinearStage(copy.out, op.segments)
        written = access(op).writes
        current = {copy for copy in current if copy.x not in written}
        reordered.append(op)
    return reordered


def reordered_buffers(ops: Sequence[FlatOp], buffers: Mapping[str, Buffer]) -> dict[str, Buffer]:
    """The buffers of the reordered copies."""
    return {op.out: replace(buffers[op.x], name=op.out) for op in ops if isinstance(op, Reorder)}


def fold_adds(ops: Sequence[FlatOp], outputs: Collection[str]) -> list[FlatOp]:
    """`h = linear(..); x = x + h` becomes a linear that adds to x, where nothing else reads h.

    Exact: the linear kernels finish the sum (and the bias) before they add what the output held.
    """
    folded: list[FlatOp] = []
    for index, op in enumerate(ops):
        last = folded[-1] if folded else None
        if isinstance(op, Add) and isinstance(last, LinearStage):
            segment = last.segments[-1]
            foldable = (
                segment.out in (op.x, op.y)
                and op.out == _other(op, segment.out)
                and op.out not in (segment.out, last.x)
                and not segment.add
                and not _read_later(ops[index + 1 :], segment.out, outputs)
            )
            if foldable:
                folded[-1] = LinearStage(
                    last.x, (*last.segments[:-1], Segment(segment.weight, segment.bias, op.out, add=True))
                )
                continue
        folded.append(op)
    return folded


def join_linears(ops: Sequence[FlatOp]) -> list[FlatOp]:
    """Neighbouring linears that read the same buffer (q, k, v; gate, up) become one stage."""
    joined: list[FlatOp] = []
    for op in ops:
        last = joined[-1] if joined else None
        if isinstance(op, LinearStage) and isinstance(last, LinearStage) and _independent(last, op):
            joined[-1] = LinearStage(last.x, last.segments + op.segments)
        else:
            joined.append(op)
    return joined


def quantize_inputs(ops: Sequence[FlatOp], int8_weights: Collection[str]) -> list[FlatOp]:
    """Puts a `Quantize` before the first linear that needs the int8 form of what a buffer holds, once per content."""
    quantized: list[FlatOp] = []
    current: set[str] = set()
    for op in ops:
        if isinstance(op, LinearStage) and op.x not in current and any(s.weight in int8_weights for s in op.segments):
            quantized.append(Quantize(op.x))
            current.add(op.x)
        current.difference_update(access(op).writes)
        quantized.append(op)
    return quantized


def gather_sections(ops: Sequence[FlatOp], buffers: Mapping[str, Buffer]) -> Iterator[Section]:
    """Everything between two ops that are sections of their own, over the same dimension, becomes one section."""

    def dim_of(op: FlatOp) -> Dim | None:
        if isinstance(op, WholeOp):
            return None
        touched = access(op)
        return next(buffers[name].dim for name in (*touched.writes, *touched.reads) if name in buffers)

    for dim, group in groupby(ops, dim_of):
        row_wise: list[RowOp | LinearStage] = []
        for op in group:
            if isinstance(op, WholeOp):
                yield op
            else:
                row_wise.append(op)
        if dim is not None:
            yield RowSection(dim, tuple(gather_rows(row_wise)))


def gather_rows(ops: Sequence[RowOp | LinearStage]) -> Iterator[RowStage | LinearStage]:
    """Consecutive row ops become one stage."""
    rows: list[RowOp] = []
    for op in ops:
        if not isinstance(op, LinearStage):
            rows.append(op)
            continue
        if rows:
            yield RowStage(tuple(rows))
            rows = []
        yield op
    if rows:
        yield RowStage(tuple(rows))


def find_local(sections: Sequence[Section]) -> frozenset[str]:
    """Buffers and int8 forms that every section which touches them writes before it reads them."""
    names: set[str] = set()
    carried: set[str] = set()
    for section in sections:
        if isinstance(section, WholeOp):
            carried.update(access(section).reads, access(section).writes)
            continue
        written: set[str] = set()
        for op in _ops_of(section):
            touched = access(op)
            carried.update(set(touched.reads) - written)
            written.update(touched.writes)
        names |= written
    return frozenset(names - carried)


def _ops_of(section: RowSection) -> Iterator[RowOp | LinearStage]:
    for stage in section.stages:
        if isinstance(stage, RowStage):
            yield from stage.ops
        else:
            yield stage


def _other(add: Add, operand: str) -> str:
    return add.y if add.x == operand else add.x


def _read_later(ops: Sequence[FlatOp], buffer: str, outputs: Collection[str]) -> bool:
    """Whether what the buffer holds now is read by any of the ops, or by the caller after them."""
    for op in ops:
        if buffer in access(op).reads:
            return True
        if buffer in access(op).writes:
            return False
    return buffer in outputs


def _independent(first: LinearStage, second: LinearStage) -> bool:
    """Whether two linears over one input may run at the same time."""
    touched = set(access(first).writes)
    return first.x == second.x and first.x not in touched and touched.isdisjoint(access(second).writes)
