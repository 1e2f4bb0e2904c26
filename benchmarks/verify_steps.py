"""What a step with drafts takes, next to one without: executor and sampler alone, on steps of equal requests.

Each request runs its last known token and K drafts, all of them right; every token has a row of logits. Cases take
turns, so that what disturbs a while disturbs all alike. With one thread the clock is that thread's CPU time, which a
busy machine hardly bends, and a figure the 30th percentile; with more it is the wall, and the 10th percentile. Which
ops take the time, and what bounds them, is told by verify_rows.py.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from octavo.bench.steps import StepCase, build_executor, make_batch
from octavo.decoding.sampler import NativeSampler
from octavo.execution.loader import open_checkpoint
from octavo.execution.native.executor import NativeExecutor
from octavo.execution.weights import load_model
from octavo.hub import resolve
from octavo.request.params import SamplingParams

LEAST_TURNS = 5


@dataclass(frozen=True)
class StepMs:
    """Of one case, in milliseconds."""

    batch: int
    drafts: int
    """Of each request."""
    forward_ms: float
    sample_ms: float
    """Drawing from all rows, one after the other as drafts allow."""

    @property
    def rows(self) -> int:
        return self.batch * (1 + self.drafts)

    @property
    def step_ms(self) -> float:
        return self.forward_ms + self.sample_ms


class _Case:
    """A step that can be run again and again."""

    def __init__(self, executor: NativeExecutor, sampler: NativeSampler, batch: int, drafts: int, context: int) -> None:
        self.batch, self.drafts = batch, drafts
        case = StepCase(batch, 1 + drafts, context + drafts, verifies=drafts > 0)
        self._executor, self._sampler = executor, sampler
        self._step = make_batch(executor.layout, case, sampler.valid_vocab_size)
        self._slots = np.repeat(np.arange(batch, dtype=np.int32), case.tokens)
        best = executor.run(self._step)[:, : sampler.valid_vocab_size].argmax(axis=1).astype(np.int32)
        best[drafts :: case.tokens] = -1
        self._drafts = best
        self.times: list[tuple[float, float]] = []
        """Of each run, forward and sampling, in seconds."""

    def run(self, clock: Callable[[], float]) -> None:
        """Once."""
        started = clock()
        logits = self._executor.run(self._step)
        ran = clock()
        if self.drafts:
            self._sampler.verify(logits, self._slots, self._drafts)
        else:
            self._sampler.sample(logits, self._slots)
        self.times.append((ran - started, clock() - ran))

    def result(self, percentile: float) -> StepMs:
        forward, sample = np.percentile(self.times, percentile, axis=0).tolist()
        return StepMs(self.batch, self.drafts, 1e3 * forward, 1e3 * sample)


def measure(
    model: str, *, threads: int, batches: Sequence[int], drafts: Sequence[int], context: int, seconds: float
) -> list[StepMs]:
    """Steps of every number of requests with every number of drafts; takes about `seconds`, or a few turns of each."""
    program, weights = load_model(open_checkpoint(resolve(model).files))
    pairs = [(batch, count) for batch in batches for count in sorted({0, *drafts})]
    shapes = [StepCase(batch, 1 + count, context + count, verifies=True) for batch, count in pairs]
    executor = build_executor(program, weights, shapes, threads=threads, isa="auto")
    del weights
    sampler = NativeSampler(executor.pool, program.vocab_size, program.vocab_size, executor.isa)
    for slot in range(max(batches)):
        sampler.add(slot, SamplingParams(temperature=0), (), [1], [])
    cases = [_Case(executor, sampler, batch, count, context) for batch, count in pairs]
    clock = time.thread_time if threads == 1 else time.perf_counter
    deadline = time.monotonic() + seconds
    turns = 0
    while turns < LEAST_TURNS or time.monotonic() < deadline:
        for case in cases:
            case.run(clock)
        turns += 1
    executor.close()
    return [case.result(30 if threads == 1 else 10) for case in cases]


def as_json(steps: Sequence[StepMs]) -> list[dict[str, Any]]:
    return [asdict(step) | {"rows": step.rows, "step_ms": step.step_ms} for step in steps]


def as_markdown(steps: Sequence[StepMs]) -> str:
    """Milliseconds of whole steps; in brackets over the step without drafts, which is how many tokens must come of a
    step of a request for the drafts to pay."""
    batches = sorted({step.batch for step in steps})
    by_case = {(step.batch, step.drafts): step for step in steps}
    lines = ["| K | " + " | ".join(f"batch {batch}" for batch in batches) + " |", "|---" * (1 + len(batches)) + "|"]
    for count in sorted({step.drafts for step in steps}):
        cells = []
        for batch in batches:
            step, alone = by_case[batch, count], by_case[batch, 0]
            cells.append(f"{step.step_ms:.2f} ({step.step_ms / alone.step_ms:.2f})")
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
