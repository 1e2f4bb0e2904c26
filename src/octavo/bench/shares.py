"""How much of what the machine allows a model's steps reach: `octavo doctor --bench`."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.bench.bounds import Bound, bound, step_work
from octavo.bench.op_shares import OpShare, op_shares
from octavo.bench.stage_work import stage_work
from octavo.bench.steps import StepCase, StepTimes, build_executor, make_batch, time_step
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.native.stages import Section
from octavo.execution.quant import TensorType
from octavo.execution.weights import LoadedWeight, load_model
from octavo.hub import DEFAULT_MODEL, Progress, known_models, resolve
from octavo.model.program import Program
from octavo.platform.cpu import describe_machine
from octavo.platform.peaks import Peaks, measure_peaks

CASES = {
    "decode, 1 request": StepCase(1, 1, 200),
    "decode, 16 requests": StepCase(16, 1, 200),
    "decode, 32 requests": StepCase(32, 1, 200),
    "prefill of 512": StepCase(1, 512, 512),
}
"""What is measured: tokens of the step, and the context they see."""

SYNTHETIC = TinyModel(
    layers=12,
    hidden=512,
    heads=8,
    kv_heads=2,
    intermediate=1536,
    vocab_size=16384,
    tensor_type=TensorType.Q4_1,
    embedding_type=TensorType.Q8_0,
)
"""Stands in where no model is cached: a llama of 45 million random weights, in the proportions of small real ones."""

BUSY_LOAD = 0.5
"""Runnable processes per usable core from which on figures mean little."""


@dataclass(frozen=True)
class StepShare:
    """One kind of step: what it took, and what it must take at least."""

    case: str
    seconds: float
    """Median."""
    tokens_per_s: float
    bound: Bound
    share: float
    """`bound.seconds / seconds`."""
    ops: tuple[OpShare, ...] = ()
    """In the order in which they run."""


@dataclass(frozen=True)
class MachineShares:
    """The machine's limits, and how close to them a model's steps come."""

    model: str
    peaks: Peaks
    load: float
    """Runnable processes before the measurement (the last minute's average)."""
    usable_cores: int
    steps: tuple[StepShare, ...]

    @property
    def busy(self) -> bool:
        """Whether other programs were likely to slow the steps down."""
        return self.load > BUSY_LOAD * self.usable_cores


def measure_machine(
    model: str | None = None, *, progress: Progress | None = None, seconds: float = 6.0
) -> MachineShares:
    """Measures the machine's peaks, the steps of `CASES` with all usable cores, and the peaks again: other programs can
    only lower them, so the better ones count.

    Args:
        model: a model's name or path; None: one from the cache, or a synthetic one.
        seconds: for the steps together; the peaks take half of it on top, loading what it takes.

    Raises:
        OctavoError: a named model cannot be had.
    """
    machine, load = describe_machine(), os.getloadavg()[0]
    name, program, weights = load_any(model, progress)
    before = measure_peaks(machine.usable_cores, "auto", seconds / 4)
    timed = time_steps(program, weights, CASES, seconds / len(CASES), threads=before.threads, isa=before.isa)
    peaks = before.best_of(measure_peaks(machine.usable_cores, "auto", seconds / 4))
    return MachineShares(name, peaks, load, machine.usable_cores, timed.shares(peaks))


def load_any(name: str | None, progress: Progress | None = None) -> tuple[str, Program, dict[str, LoadedWeight]]:
    """The named model; without a name the default one if it is cached, else any cached one, else `SYNTHETIC`.

    Returns:
        What to call it, its program, its weights.
    """
    if name is None:
        cached = [model.alias for model in known_models() if model.cached]
        name = next((alias for alias in (DEFAULT_MODEL, *cached) if alias in cached), None)
    if name is not None:
        return name, *load_model(open_checkpoint(resolve(name, progress=progress).files))
    with tempfile.TemporaryDirectory() as folder:
        file = write_tiny_model(Path(folder) / "synthetic.gguf", SYNTHETIC)
        return "a synthetic model", *load_model(open_checkpoint([file]))


@dataclass(frozen=True)
class TimedSteps:
    """A model's steps, and what they took."""

    program: Program
    weights: Mapping[str, LoadedWeight]
    sections: tuple[Section, ...]
    """As the native executor runs the program."""
    cases: Mapping[str, tuple[StepCase, StepTimes]]

    def shares(self, peaks: Peaks) -> tuple[StepShare, ...]:
        """Of what a machine of these peaks allows."""
        return tuple(self._share(name, case, times, peaks) for name, (case, times) in self.cases.items())

    def _share(self, name: str, case: StepCase, times: StepTimes, peaks: Peaks) -> StepShare:
        least = bound(step_work(self.program, case.shape, self.weights), peaks)
        works = stage_work(self.sections, self.program, case.shape, self.weights)
        rate, share = case.total_tokens / times.wall_s, least.share(times.wall_s)
        return StepShare(name, times.wall_s, rate, least, share, op_shares(works, case, times, peaks))


def time_steps(
    program: Program,
    weights: Mapping[str, LoadedWeight],
    cases: Mapping[str, StepCase],
    seconds: float,
    *,
    threads: int,
    isa: str,
) -> TimedSteps:
    """Runs each case for about `seconds`, every other time with the times of its ops."""
    executor = build_executor(program, weights, list(cases.values()), threads=threads, isa=isa)
    timed = {
        name: (case, time_step(executor, [make_batch(executor.layout, case, program.vocab_size)], seconds, least=3))
        for name, case in cases.items()
    }
    executor.close()
    return TimedSteps(program, weights, executor.lowered.sections, timed)


def as_text(shares: MachineShares) -> Sequence[str]:
    """The figures for a terminal, one a line."""
    peaks = shares.peaks
    limits = (
        f"this machine reads {peaks.read_bytes_per_s / 1e9:.1f} GB/s and does {peaks.int8_ops_per_s / 1e9:.0f} G "
        f"operations on bytes or {peaks.float_ops_per_s / 1e9:.0f} G on floats per second"
    )
    return [
        f"{shares.model}, {peaks.threads} threads, kernel path {peaks.isa}",
        limits,
        *(
            f"{step.case}: {1e3 * step.seconds:.1f} ms, {step.tokens_per_s:.0f} tokens/s, "
            f"{100 * step.share:.0f} % of what {step.bound.limit} allows"
            for step in shares.steps
        ),
    ]
