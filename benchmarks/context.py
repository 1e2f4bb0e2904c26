"""What long contexts cost: decoding late against decoding early, prefill of long prompts; each beside its bound.

    python benchmarks/context.py [--model qwen2.5-coder-0.5b] [--decode 128 4000] [--prefill 2000 8000] [--rounds 3]

The whole engine runs alone, one request at a time, cases by turns. A decode figure is the time per token of STEPS
more tokens after a prompt of that many; a prefill figure is the time from the first step to the first token. The
bound is the least time that the machine's measured peaks allow for the same steps (`octavo.bench.bounds`), with the
engine's own token budget and, for decoding, the context in the middle of the STEPS.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairing import Estimate, estimate, paired_ratios, rotated

from octavo import LLM
from octavo.bench.bounds import bound, step_work
from octavo.bench.datasets import random_prompts
from octavo.bench.machine import hardware, versions
from octavo.bench.measured import run_batch
from octavo.execution.loader import open_checkpoint
from octavo.execution.weights import LoadedWeight, load_model
from octavo.hub import resolve
from octavo.model.cost import StepShape
from octavo.model.program import Program
from octavo.platform.peaks import Peaks, measure_peaks

STEPS = 64
PEAKS_S = 3.0


@dataclass(frozen=True)
class Decode:
    """Seconds per token after a prompt of `context` tokens."""

    context: int

    @property
    def name(self) -> str:
        return f"decode at {self.context:,}"

    def measure(self, llm: LLM, salt: int) -> float:
        (ledger,) = run_batch(llm, random_prompts(1, self.context, llm.info.vocab_size, salt), STEPS + 1)
        assert ledger.finished_s is not None and ledger.first_token_s is not None
        return (ledger.finished_s - ledger.first_token_s) / STEPS

    def shapes(self, budget: int) -> list[StepShape]:
        return [StepShape((1,), (self.context + STEPS // 2,), 1)]

    def tokens(self) -> int:
        return 1


@dataclass(frozen=True)
class Prefill:
    """Seconds until a prompt of `length` tokens has its first token."""

    length: int

    @property
    def name(self) -> str:
        return f"prefill of {self.length:,}"

    def measure(self, llm: LLM, salt: int) -> float:
        (ledger,) = run_batch(llm, random_prompts(1, self.length, llm.info.vocab_size, salt), 1)
        assert ledger.first_token_s is not None and ledger.first_scheduled_s is not None
        return ledger.first_token_s - ledger.first_scheduled_s

    def shapes(self, budget: int) -> list[StepShape]:
        ends = [*range(budget, self.length, budget), self.length]
        return [
            StepShape((end - begin,), (end,), int(end == self.length))
            for begin, end in zip([0, *ends], ends, strict=False)
        ]

    def tokens(self) -> int:
        return self.length


Case = Decode | Prefill


def bound_s(
    case: Case, program: Program, weights: Mapping[str, LoadedWeight], peaks: Peaks, budget: int
) -> dict[str, Any]:
    """The least time of a case, and what limits its longest step."""
    bounds = [bound(step_work(program, shape, weights), peaks) for shape in case.shapes(budget)]
    return {"seconds": sum(each.seconds for each in bounds), "limit": bounds[-1].limit}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds of all cases."""
    files = resolve(options.model).files
    program, weights = load_model(open_checkpoint(files))
    cases: list[Case] = [*map(Decode, options.decode), *map(Prefill, options.prefill)]
    with LLM(options.model, threads=options.threads, enable_prefix_caching=False, speculation="off") as llm:
        cases[0].measure(llm, salt=0)
        rounds: list[dict[str, float]] = []
        for number in range(options.rounds):
            order = rotated(cases, number)
            rounds.append({case.name: case.measure(llm, salt=number + 1) for case in order})
            print(f"round {number + 1}: {rounds[-1]}", file=sys.stderr)
        info = llm.info
    peaks = measure_peaks(options.threads, info.isa, PEAKS_S)
    budget = info.max_num_batched_tokens
    return {
        "model": options.model,
        "hardware": hardware(),
        "versions": versions(),
        "threads": options.threads,
        "isa": info.isa,
        "token_budget": budget,
        "peaks": vars(peaks),
        "tokens": {case.name: case.tokens() for case in cases},
        "bounds": {case.name: bound_s(case, program, weights, peaks, budget) for case in cases},
        "rounds": rounds,
    }


def as_markdown(result: dict[str, Any]) -> str:
    """One line per case, then how the late decode compares with the early one."""
    lines = ["| case | tokens/s | of the bound | bound by |", "|---|---|---|---|"]
    for name, tokens in result["tokens"].items():
        seconds = estimate([one[name] for one in result["rounds"]]).median
        least = result["bounds"][name]
        lines.append(
            f"| {name} | {tokens / seconds:,.0f} | {100 * least['seconds'] / seconds:.0f} % | {least['limit']} |"
        )
    decodes = [name for name in result["tokens"] if name.startswith("decode")]
    for late in decodes[1:]:
        ratio = _speed_ratio(result, late, decodes[0])
        lines += [
            "",
            f"{late} against {decodes[0]}: {ratio.median:.2f} of the speed [{ratio.low:.2f}, {ratio.high:.2f}].",
        ]
    machine = result["hardware"]
    heading = f"{result['model']}, {machine['cpu']}, {result['threads']} threads, {len(result['rounds'])} rounds."
    return "\n".join([heading, "", *lines]) + "\n"


def _speed_ratio(result: dict[str, Any], late: str, early: str) -> Estimate:
    times = {name: [one[name] for one in result["rounds"]] for name in (late, early)}
    return estimate(paired_ratios(times[early], times[late]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF model by name or path")
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--decode", type=int, nargs="*", default=[128, 4000], help="contexts")
    parser.add_argument("--prefill", type=int, nargs="*", default=[2000, 8000], help="lengths")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="without ending: JSON and Markdown")
    options = parser.parse_args()
    result = run(options)
    if options.out is not None:
        options.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(as_markdown(result))
    print(as_markdown(result))


if __name__ == "__main__":
    main()
