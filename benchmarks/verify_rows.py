"""What rows beyond the first cost: the step that verifies drafts, by number of rows, beside its bound.

    python benchmarks/verify_rows.py [--models qwen2.5-coder-0.5b smollm2-135m] [--context 1024] [--rows 1 2 ... 64]
                                     [--company run crowd four] [--kv-dtype fp16] [--threads 2] [--isa auto]
                                     [--seconds 18] [--json OUT.json] [--md OUT.md]

A step of r rows, each with its logits, as one of three companies:

    run      r consecutive positions of one request: its last token and r - 1 drafts
    crowd    one row each of r requests
    four     four requests with r / 4 consecutive positions each (only where 4 divides r)

Keys and values hold random numbers, so that they come from memory as those of a served model do. All cases run by
turns, for about `--seconds` per model in all; each stage's time is the 10th percentile of its runs by the clock, from
the end of the stage before, and a step is the sum of its stages: what it takes when nobody interferes. `sampling` is
the draw of the same rows from logits just written, all drafts right. The bound is the larger of (weights and K and V
once per step / the memory's speed) and (operations / the speed of the cores), see `octavo.bench.bounds`; `x` columns
are relative to the same company's first row.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from step_cost import by_kind

from octavo.bench.bounds import Bound, bound, step_work
from octavo.bench.machine import hardware, versions
from octavo.bench.steps import StepCase, add_up, build_executor, make_batch
from octavo.decoding.sampler import NativeSampler
from octavo.execution.loader import open_checkpoint
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import Float32, Int32, StepBatch
from octavo.execution.weights import load_model
from octavo.hub import resolve
from octavo.kv.spec import KVDtype
from octavo.platform.peaks import Peaks, measure_peaks
from octavo.request.params import SamplingParams

ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64)
REQUESTS: dict[str, Callable[[int], int]] = {"run": lambda rows: 1, "crowd": lambda rows: rows, "four": lambda rows: 4}
"""Company -> requests that share so many rows."""
LEAST_ROUNDS = 8
DRAWS = 5
"""Of which the quickest counts."""


@dataclass
class Measured:
    """One company at one number of rows."""

    company: str
    case: StepCase
    batch: StepBatch
    bound: Bound
    profiles: list[list[tuple[str, float]]] = field(default_factory=list)
    sampling_s: list[float] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.case.total_tokens

    def stages(self) -> dict[str, float]:
        """Seconds by name of stage."""
        return add_up(self.profiles)

    def quiet(self) -> dict[str, float]:
        """Seconds by kind of stage, `step` for all of them, and `sampling`."""
        kinds = by_kind(self.stages())
        return {"step": sum(kinds.values()), **kinds, "sampling": float(np.percentile(self.sampling_s, 10))}


class Draws:
    """Draws rows as a step's verification does: greedy, drafts that turn out right."""

    def __init__(self, executor: NativeExecutor, vocab_size: int) -> None:
        self._sampler = NativeSampler(executor.pool, vocab_size, vocab_size, executor.isa)
        self._params = SamplingParams(temperature=0, max_tokens=1 << 20, ignore_eos=True)

    def time(self, logits: Float32, case: StepCase) -> float:
        """Seconds of one draw of all rows."""
        slots = np.repeat(np.arange(case.sequences, dtype=np.int32), case.tokens)
        drafts = self._right_drafts(logits, case)
        for slot in range(case.sequences):
            self._sampler.add(slot, self._params, (), (1, 2, 3), ())
        started = time.perf_counter()
        sampled = self._sampler.verify(logits, slots, drafts)
        seconds = time.perf_counter() - started
        for slot in range(case.sequences):
            self._sampler.remove(slot)
        if (sampled.token_ids < 0).any():
            raise SystemExit("a draft that was right did not count")
        return seconds

    @staticmethod
    def _right_drafts(logits: Float32, case: StepCase) -> Int32:
        drafts: Int32 = logits.argmax(axis=1).astype(np.int32)
        drafts[case.tokens - 1 :: case.tokens] = -1
        return drafts


def cases_of(companies: Sequence[str], rows: Sequence[int], context: int) -> Iterator[tuple[str, StepCase]]:
    """Every company with every number of rows that its requests can share."""
    for company in companies:
        for count in rows:
            requests = REQUESTS[company](count)
            if count % requests == 0:
                yield company, StepCase(requests, count // requests, context, verifies=True)


def fill_with_noise(executor: NativeExecutor) -> None:
    """Writes random keys and values to all blocks: memory never written would be read from one page of zeros."""
    rng = np.random.default_rng(0)
    for group in range(len(executor.layout.groups)):
        noise = rng.integers(0, 256, executor.block_bytes(group), dtype=np.uint8)
        noise &= 0xBB  # no exponent near those of infinity and NaN, in every float format and in scales
        for block in range(executor.layout.num_blocks):
            executor.write_block(group, block, noise)


def measure_model(model: str, options: argparse.Namespace, peaks: Peaks) -> list[Measured]:
    """All cases of one model, by turns."""
    program, weights = load_model(open_checkpoint(resolve(model).files))
    cases = list(cases_of(options.company, options.rows, options.context))
    executor = build_executor(
        program,
        weights,
        [case for _, case in cases],
        threads=options.threads,
        isa=options.isa,
        kv_dtype=options.kv_dtype,
    )
    fill_with_noise(executor)
    all_measured = []
    for company, case in cases:
        batch = make_batch(executor.layout, case, program.vocab_size)
        least = bound(step_work(program, case.shape, weights), peaks)
        all_measured.append(Measured(company, case, batch, least))
    take_turns(executor, all_measured, Draws(executor, program.vocab_size), options.seconds)
    executor.close()
    return all_measured


def take_turns(executor: NativeExecutor, all_measured: Sequence[Measured], draws: Draws, seconds: float) -> None:
    """Rounds over all cases for about so many seconds."""
    deadline = time.monotonic() + seconds
    rounds = 0
    while rounds < LEAST_ROUNDS or time.monotonic() < deadline:
        for measured in all_measured:
            measured.profiles.append(executor.profile(measured.batch))
            if rounds < DRAWS:
                measured.sampling_s.append(draws.time(executor.output("logits"), measured.case))
        rounds += 1


def as_markdown(model: str, all_measured: Sequence[Measured], options: argparse.Namespace) -> str:
    """One table per company."""
    lines = [f"### {model}, context {options.context}, {options.threads} threads, K and V as {options.kv_dtype}", ""]
    header = ("rows", "step, ms", "x", "bound, ms", "x", "linears", "logits", "attention", "row ops", "sampling")
    for company in options.company:
        chosen = [m for m in all_measured if m.company == company]
        first, first_bound = chosen[0].quiet()["step"], chosen[0].bound.seconds
        lines += [f"| {company}: " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        for m in chosen:
            quiet = m.quiet()
            cells = [f"{1e3 * quiet['step']:.2f}", f"{quiet['step'] / first:.2f}", f"{1e3 * m.bound.seconds:.2f}",
                     f"{m.bound.seconds / first_bound:.2f}"]  # fmt: skip
            cells += [f"{1e3 * quiet[kind]:.2f}" for kind in ("linears", "logits", "attention", "row ops", "sampling")]
            lines.append(f"| {m.rows} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def as_figures(all_measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Everything measured, in seconds."""
    return [
        {"company": m.company, "rows": m.rows, "requests": m.case.sequences, "bound_s": m.bound.seconds,
         "bound_by": m.bound.limit.value, "rounds": len(m.profiles), "quiet_s": m.quiet(),
         "stages_s": m.stages()}
        for m in all_measured
    ]  # fmt: skip


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["qwen2.5-coder-0.5b", "smollm2-135m"], help="names or paths")
    parser.add_argument("--context", type=int, default=1024, help="tokens of each request, the step's included")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="numbers of rows, ascending")
    parser.add_argument(
        "--company", nargs="+", choices=list(REQUESTS), default=list(REQUESTS), help="who shares a step"
    )
    parser.add_argument("--kv-dtype", type=KVDtype, default=KVDtype.FP16, help="number format of K and V")
    parser.add_argument("--threads", type=int, default=2, help="compute threads")
    parser.add_argument("--isa", default="auto", help="kernel path")
    parser.add_argument("--seconds", type=float, default=18.0, help="for each model")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--md", type=Path, help="write the tables there")
    return parser.parse_args()


def main() -> None:
    """Measures, prints the tables, writes files."""
    options = parse()
    peaks = measure_peaks(options.threads, options.isa)
    by_model = {model: measure_model(model, options, peaks) for model in options.models}
    tables = "\n".join(as_markdown(model, measured, options) for model, measured in by_model.items())
    print(tables)
    figures = {"context": options.context, "threads": options.threads, "isa": peaks.isa, "peaks": vars(peaks),
               "kv_dtype": options.kv_dtype.value, "hardware": hardware(), "versions": versions(),
               "models": {model: as_figures(measured) for model, measured in by_model.items()}}  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if options.md is not None:
        options.md.write_text(tables)


if __name__ == "__main__":
    main()
