"""What profiling costs: the CPU time of decode steps of a whole engine with a profile and without, in turns.

    python benchmarks/profile_cost.py [--model smollm2-135m] [--batch 1 16] [--steps 32] [--rounds 12]

One compute thread, so the caller's CPU time, which a busy machine hardly bends, is all that a step takes. Each round
generates twice, once with a profile; the figure is the median of the rounds' ratios. What the trace itself takes
afterwards (stopping, rendering) is told apart.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median, quantiles

from octavo import LLM, SamplingParams

PROMPT = list(range(100, 228))


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU time of this thread."""
    since = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - since)


def measure(llm: LLM, batch: int, steps: int, rounds: int) -> str:
    """One line."""
    params = SamplingParams(temperature=0, max_tokens=1 + steps, ignore_eos=True, detokenize=False)
    prompts = [[100 + i, *PROMPT] for i in range(batch)]

    def generate() -> object:
        return llm.generate(prompts, params)

    generate()  # so that prompts are cached from now on
    ratios, extra, rendering, events = [], [], [], 0
    for _ in range(rounds):
        plain = cpu_ms(generate)
        llm.start_profile()
        profiled = cpu_ms(generate)
        since = time.thread_time()
        events = llm.stop_profile().about["events"]
        rendering.append(1e3 * (time.thread_time() - since))
        ratios.append(profiled / plain)
        extra.append((profiled - plain) / (1 + steps))
    low, _, high = quantiles(ratios, n=4)
    return (
        f"batch {batch}: x {median(ratios):.3f} (quartiles {low:.3f} to {high:.3f}), {median(extra):+.2f} ms per step, "
        f"{events / (1 + steps):.0f} events per step; rendering {1e3 * median(rendering) / events:.1f} us per event"
    )


def main() -> None:
    """Prints a line for each number of requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    with LLM(options.model, threads=1, max_model_len=1024, speculation="off") as llm:
        for batch in options.batch:
            print(measure(llm, batch, options.steps, options.rounds), flush=True)


if __name__ == "__main__":
    main()
