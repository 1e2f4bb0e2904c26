"""What the native core runs: stages, each of row-wise ops, of linears over one input, or of attention.

Ops that need no lowering are those of `octavo.model.program`; buffers and weights keep their names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from octavo.model.dataflow import reads, writes
from octavo.model.program import (
    Activate,
    Add,
    Attention,
    Buffer,
    CacheWrite,
    Dim,
    Embed,
    EmbedPositions,
    Experts,
    GatedActivation,
    LayerNorm,
    RmsNorm,
    Rope,
    Route,
    Scale,
    SelectRows,
    SigmoidScale,
)


@dataclass(frozen=True)
class Quantize:
    """Makes the int8 form of buffer x, for linears whose weights have an integer format."""

    x: str


@dataclass(frozen=True)
class Softcap:
    """x = cap * tanh(x / cap)."""

    x: str
    cap: float


@dataclass(frozen=True)
class Reorder:
    """out[i] = x[order[i]]: inputs as the blocks of a weight hold them. `order` indexes `Lowered.orders`."""

    x: str
    order: int
    out: str


@dataclass(frozen=True)
class Segment:
    """One weight of a `LinearStage`: out = x @ weight.T (+ bias) (+ out)."""

    weight: str
    bias: str | None
    out: str
    add: bool = False


@dataclass(frozen=True)
class LinearStage:
    """Linears that read the same buffer; their formats may differ."""

    x: str
    segments: tuple[Segment, ...]


RowOp = (
    Embed
    | EmbedPositions
    | RmsNorm
    | LayerNorm
    | Rope
    | CacheWrite
    | GatedActivation
    | Activate
    | Route
    | SigmoidScale
    | Add
    | Scale
    | SelectRows
    | Quantize
    | Softcap
    | Reorder
)
"""Ops whose row r reads and writes row r alone (SelectRows: reads a row that an earlier stage wrote)."""


@dataclass(frozen=True)
class RowStage:
    """Row ops that four rows at a time pass through one after the other."""

    ops: tuple[RowOp, ...]


@dataclass(frozen=True)
class RowSection:
    """Stages whose row r needs nothing but row r of the stages before it: they run block of rows by block of rows, so
    that what one writes is still in the cache when the next one reads it."""

    dim: Dim
    stages: tuple[RowStage | LinearStage, ...]


WholeOp = Attention | Experts
"""Ops that are a section of their own: their rows meet, in the cache or at an expert."""

FlatOp = RowOp | LinearStage | WholeOp
"""An op between the passes of `lower`, before row ops are gathered into stages."""

Section = RowSection | WholeOp


class ExpertsPart(StrEnum):
    """The stages of a layer of experts, in their order."""

    SEAT = "seat"
    GATHER = "gather"
    GATE_UP = "gate+up"
    ACTIVATE = "activate"
    DOWN = "down"
    COMBINE = "combine"


@dataclass(frozen=True)
class ExpertsStage:
    """One stage of a layer of experts."""

    op: Experts
    part: ExpertsPart


Stage = RowStage | LinearStage | Attention | ExpertsStage


@dataclass(frozen=True)
class Lowered:
    """A program as the native core runs it."""

    sections: tuple[Section, ...]
    buffers: Mapping[str, Buffer]
    """The program's, and those that hold reordered inputs."""
    orders: tuple[npt.NDArray[np.int32], ...]
    """Orders of inputs that weights are stored in."""
    local: frozenset[str]
    """Buffers and int8 forms that carry nothing from one section to another: memory for one block is enough."""


def int8_form(buffer: str) -> str:
    """Name of a buffer's int8 form, where forms and buffers are listed together."""
    return f"{buffer} (int8)"


@dataclass(frozen=True)
class Access:
    """Names of the buffers and int8 forms an op reads and writes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]


def access(op: FlatOp | Stage) -> Access:
    """What an op does to the buffers. An op that works in place reads and writes its buffer."""
    match op:
        case Softcap(x=x):
            return Access((x,), (x,))
        case Quantize(x=x):
            return Access((x,), (int8_form(x),))
        case Reorder(x=x, out=out):
            return Access((x,), (out,))
        case LinearStage(x=x, segments=segments):
            added = tuple(s.out for s in segments if s.add)
            return Access((x, int8_form(x), *added), tuple(s.out for s in segments))
        case ExpertsStage(op=experts):
            return Access(reads(experts), (experts.out,))
        case RowStage():
            raise TypeError(f"ask each op of {op}")
    written = writes(op)
    return Access(reads(op), () if written is None else (written,))


def last_writer(sections: Sequence[Section], buffer: str) -> tuple[int, int]:
    """(section, stage in it) of the last stage that writes a buffer.

    Raises:
        ValueError: none does.
    """
    places = [
        (index, place)
        for index, section in enumerate(sections)
        for place, stage in enumerate(stages_of(section))
        for op in (stage.ops if isinstance(stage, RowStage) else (stage,))
        if buffer in access(op).writes
    ]
    if not places:
        raise ValueError(f"no stage writes {buffer}")
    return places[-1]


def stages_of(section: Section) -> tuple[Stage, ...]:
    """The stages of a section, in the order of the native core."""
    match section:
        case Attention():
            return (section,)
        case Experts():
            return tuple(ExpertsStage(section, part) for part in ExpertsPart)
    return section.stages


def stage_names(section: Section) -> tuple[str, ...]:
    """A name for each stage of a section, the same in every layer."""
    return tuple(_stage_name(stage) for stage in stages_of(section))


def _stage_name(stage: Stage) -> str:
    match stage:
        case Attention():
            return "attention"
        case ExpertsStage(part=part):
            return f"experts {part}"
        case RowStage(ops=ops):
            return "+".join(type(op).__name__ for op in ops)
        case LinearStage(segments=segments):
            return "linear " + "+".join(s.weight.rsplit(".", 1)[-1] for s in segments)
