"""Builds executors: of the model, and of a second one that guesses beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from octavo import _native
from octavo.config import EngineConfig
from octavo.engine.profiler import Profiler
from octavo.execution.native.executor import NativeExecutor
from octavo.execution.native.footprint import Footprint, StepLimits, footprint
from octavo.execution.native.op_timer import NativeOpTimer
from octavo.execution.native.pack_weights import PackReport, tell_nobody
from octavo.execution.native.shared_weights import SharedWeights
from octavo.execution.protocols import DraftExecutor, OpTimer
from octavo.execution.reference.executor import ReferenceExecutor
from octavo.execution.weights import LoadedWeight
from octavo.kv.spec import KVLayout
from octavo.model.program import Program
from octavo.request.control import ExpertFigures


@dataclass(frozen=True)
class Loaded:
    """What an executor runs."""

    program: Program
    weights: Mapping[str, LoadedWeight]

    @property
    def lent(self) -> Mapping[str, str]:
        """Matrices that another executor holds: name here -> name there."""
        return {}


@dataclass(frozen=True)
class SecondLoaded(Loaded):
    """What an executor beside another one runs."""

    borrowed: Mapping[str, str]
    """Matrices that both programs have: name here -> name there."""

    @property
    def lent(self) -> Mapping[str, str]:
        return self.borrowed


@dataclass(frozen=True)
class ExecutorSizes:
    """What executors of one engine have in common."""

    layout: KVLayout
    threads: int
    isa: str
    max_tokens: int
    max_seqs: int
    max_positions: int
    num_drafts: int
    """Most of a step."""

    @property
    def max_rows(self) -> int:
        """Most rows of logits of a step."""
        return self.max_seqs + self.num_drafts


@dataclass(frozen=True)
class WeightPlaces:
    """Where packed weights go, and who is told how far that is."""

    first: SharedWeights | None = None
    """The file for all engines of the machine; None: memory of this one."""
    second: SharedWeights | None = None
    """The same, of a model that guesses."""
    report: PackReport = tell_nobody


class Executors:
    """The executors of an engine, on the threads of one pool, over one KV memory."""

    def __init__(
        self,
        config: EngineConfig,
        sizes: ExecutorSizes,
        model: Loaded,
        second: SecondLoaded | None,
        clock: Callable[[], float],
        places: WeightPlaces = WeightPlaces(),
    ) -> None:
        """
        Args:
            clock: on which ops are timed.
        """
        self._kind, self._clock = config.execution.executor, clock
        build = _KINDS[self._kind]
        self.model, self.second, self.pool, timed = build(sizes, model, second, places)
        self.op_timer: OpTimer | None = NativeOpTimer(timed, clock) if timed else None
        """None: they do not time their ops."""
        self._counted = timed.get("model")

    def expert_figures(self) -> list[ExpertFigures]:
        """How the model's experts have been used so far; none where they are not counted or it is closed."""
        totals = () if self._counted is None else self._counted.expert_totals()
        return [
            ExpertFigures(layer=layer, num_experts=count, num_meetings=met, most_meetings=most)
            for layer, count, met, most in totals
        ]

    def profiler(self) -> Profiler:
        """A profiler that knows what their ops are."""
        return Profiler(self._clock, self._kind, {} if self.op_timer is None else self.op_timer.programs)


_Built = tuple[DraftExecutor, DraftExecutor | None, _native.ThreadPool, dict[str, NativeExecutor]]
"""The last: those whose ops can be timed, by the names of their programs."""


def _native_executors(sizes: ExecutorSizes, model: Loaded, second: SecondLoaded | None, places: WeightPlaces) -> _Built:
    first = NativeExecutor(
        model.program,
        model.weights,
        sizes.layout,
        threads=sizes.threads,
        isa=sizes.isa,
        max_tokens=sizes.max_tokens,
        max_rows=sizes.max_rows,
        max_seqs=sizes.max_seqs,
        max_positions=sizes.max_positions,
        shared=places.first,
        report=places.report,
    )
    if second is None:
        return first, None, first.pool, {"model": first}
    beside = NativeExecutor(
        second.program,
        second.weights,
        sizes.layout,
        threads=None,
        isa=sizes.isa,
        max_tokens=sizes.max_tokens,
        max_rows=sizes.max_seqs,
        max_seqs=sizes.max_seqs,
        max_positions=sizes.max_positions,
        beside=first,
        borrowed=second.borrowed,
        shared=places.second,
        report=places.report,
    )
    return first, beside, first.pool, {"model": first, "draft model": beside}


def _reference_executors(
    sizes: ExecutorSizes, model: Loaded, second: SecondLoaded | None, places: WeightPlaces
) -> _Built:
    first = ReferenceExecutor(model.program, model.weights, sizes.layout, max_rows=sizes.max_rows)
    pool = _native.ThreadPool(sizes.threads)
    if second is None:
        return first, None, pool, {}
    beside = ReferenceExecutor(second.program, second.weights, sizes.layout, max_rows=sizes.max_seqs, beside=first)
    return first, beside, pool, {}


def footprint_of(kind: str, model: Loaded, limits: StepLimits) -> Footprint:
    """What an executor of that kind will hold of a model, without blocks."""
    return _FOOTPRINTS[kind](model, limits)


def _native_footprint(model: Loaded, limits: StepLimits) -> Footprint:
    return footprint(model.program, model.weights, limits, model.lent)


def _reference_footprint(model: Loaded, limits: StepLimits) -> Footprint:
    """Weights are float32; buffers, made anew in each step, are taken to be as large as native ones. A weight that is
    read stands twice: as it is stored, and as floats in the order of the file."""
    sizes = [4 * prod(weight.shape) for weight in model.program.weights.values()]
    return Footprint(sum(sizes), footprint(model.program, model.weights, limits).step, loading=2 * max(sizes))


_FOOTPRINTS: dict[str, Callable[[Loaded, StepLimits], Footprint]] = {
    "native": _native_footprint,
    "reference": _reference_footprint,
}


_KINDS: dict[str, Callable[[ExecutorSizes, Loaded, SecondLoaded | None, WeightPlaces], _Built]] = {
    "native": _native_executors,
    "reference": _reference_executors,
}
