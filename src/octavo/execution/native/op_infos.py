"""What people are told of the stages of a lowered program: names, layers, weights."""

import re
from collections.abc import Iterator, Mapping, Sequence

from octavo.execution.native.stages import (
    ExpertsPart,
    ExpertsStage,
    LinearStage,
    RowStage,
    Section,
    Stage,
    stage_names,
    stages_of,
)
from octavo.model.dataflow import weights_of
from octavo.model.program import Attention, Op, Program
from octavo.request.profile import OpInfo

_LAYER = re.compile(r"layers\.(\d+)\.")

BLOCK_COPIES = OpInfo("block copies")
"""The native core's section 0."""


def op_infos(program: Program, sections: Sequence[Section], formats: Mapping[str, str]) -> list[list[OpInfo]]:
    """[section of the native core][stage].

    Args:
        formats: number format of each weight.
    """
    layer: int | None = None
    listed = [[BLOCK_COPIES]]
    for section in sections:
        infos = []
        for name, stage in zip(stage_names(section), stages_of(section), strict=True):
            weights = list(_weights(stage))
            if weights:  # else it goes on with what the one before it has begun
                layer = layer_of(weights)
            infos.append(OpInfo(name, layer, _detail(stage, program, formats)))
        listed.append(infos)
    return listed


def _weights(stage: Stage) -> Iterator[str]:
    match stage:
        case LinearStage(segments=segments):
            yield from (segment.weight for segment in segments)
        case RowStage(ops=ops):
            for op in ops:
                yield from weights_of(op) if isinstance(op, Op) else ()
        case ExpertsStage(op=experts):
            yield experts.gate[0]


def layer_of(weights: Sequence[str]) -> int | None:
    """A stage that stands between two layers belongs to the one that it prepares."""
    found = [int(match[1]) for match in map(_LAYER.search, weights) if match is not None]
    return found[-1] if found else None


def _detail(stage: Stage, program: Program, formats: Mapping[str, str]) -> str:
    match stage:
        case Attention(q=q, heads=heads):
            return f"{heads} heads of {program.buffers[q].width // heads}"
        case LinearStage(segments=segments):
            shapes = [program.weights[segment.weight].shape for segment in segments]
            named = zip(segments, shapes, strict=True)
            return ", ".join(f"{s.weight} {n} x {k} {formats[s.weight]}" for s, (n, k) in named)
        case ExpertsStage(op=op, part=ExpertsPart.GATE_UP):
            return _experts_detail(op.gate, "gate and up", program, formats)
        case ExpertsStage(op=op, part=ExpertsPart.DOWN):
            return _experts_detail(op.down, "down", program, formats)
    return ""


def _experts_detail(names: tuple[str, ...], part: str, program: Program, formats: Mapping[str, str]) -> str:
    n, k = program.weights[names[0]].shape
    return f"{part} of {len(names)} experts, {n} x {k} {'/'.join(sorted({formats[name] for name in names}))}"
