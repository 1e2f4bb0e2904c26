"""The work of the stages that the native executor makes of a program's ops, so that what it times has a bound."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from octavo.bench.bounds import Work, work_of
from octavo.execution.native.stages import (
    ExpertsPart,
    ExpertsStage,
    LinearStage,
    RowSection,
    RowStage,
    Section,
    Segment,
    Stage,
    stage_names,
    stages_of,
)
from octavo.execution.weights import LoadedWeight
from octavo.model.cost import StepShape
from octavo.model.program import Add, Attention, Dim, Linear, Logits, Op, Program


@dataclass(frozen=True)
class StageWork:
    """All stages of one name in a step."""

    count: int
    dim: Dim
    """Whether they run over the step's tokens, or over the rows whose logits are wanted."""
    work: Work


def stage_work(
    sections: tuple[Section, ...], program: Program, step: StepShape, weights: Mapping[str, LoadedWeight]
) -> dict[str, StageWork]:
    """The work of a step by the names of its stages, in their order. Sums up to `step_work`: what lowering adds of its
    own (int8 forms of inputs) is no work that has to be done."""
    pricing = _Pricing(program, step, weights)
    by_name: dict[str, StageWork] = {}
    for section in sections:
        dim: Dim = section.dim if isinstance(section, RowSection) else "tokens"
        for name, stage in zip(stage_names(section), stages_of(section), strict=True):
            before = by_name.get(name, StageWork(0, dim, Work()))
            by_name[name] = StageWork(before.count + 1, dim, before.work + pricing.stage(stage))
    return by_name


class _Pricing:
    def __init__(self, program: Program, step: StepShape, weights: Mapping[str, LoadedWeight]) -> None:
        self._program, self._step, self._weights = program, step, weights
        self._linears: dict[tuple[str, str], Op] = {
            (op.weight, op.x): op for op in program.ops if isinstance(op, Linear | Logits)
        }

    def stage(self, stage: Stage) -> Work:
        if isinstance(stage, ExpertsStage):
            return self._experts(stage)
        return sum((self._op(op) for op in self._ops(stage)), Work())

    def _experts(self, stage: ExpertsStage) -> Work:
        """A third of a layer's work is of down, the rest of gate and up; what is between them is small."""
        whole = self._op(stage.op)
        down = Work(whole.int8_ops // 3, whole.float_ops // 3, whole.memory_bytes // 3)
        match stage.part:
            case ExpertsPart.DOWN:
                return down
            case ExpertsPart.GATE_UP:
                return whole - down
        return Work()

    def _ops(self, stage: Stage) -> Iterator[Op]:
        """The program's ops that have become this stage."""
        match stage:
            case Attention():
                yield stage
            case LinearStage(x=x, segments=segments):
                for segment in segments:
                    yield from self._of_segment(x, segment)
            case RowStage(ops=ops):
                yield from (op for op in ops if isinstance(op, Op))

    def _of_segment(self, x: str, segment: Segment) -> Iterator[Op]:
        yield self._linears[segment.weight, x]
        if segment.add:
            yield Add(x=segment.out, y=segment.out, out=segment.out)

    def _op(self, op: Op) -> Work:
        return work_of(op, self._program, self._step, self._weights)
