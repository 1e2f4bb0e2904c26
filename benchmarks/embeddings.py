"""Prompt tokens per second of vectors next to those of answers of one token: both run the same prompts, the one without
logits.

Usage: python benchmarks/embeddings.py [--model NAME] [--threads N] [--rounds 5] [--json OUT.json]
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pairing import estimate, paired_ratios, rotated

from octavo import LLM, PoolingParams, SamplingParams

ANSWER = "generate, max_tokens=1"
GREEDY = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)


def prompts_of(count: int, length: int, vocab_size: int) -> list[list[int]]:
    words = random.Random(length)
    return [[words.randrange(vocab_size) for _ in range(length)] for _ in range(count)]


def ways(llm: LLM, prompts: Sequence[Sequence[int]]) -> dict[str, Callable[[], object]]:
    """What is compared, by name."""
    return {
        ANSWER: lambda: llm.generate(list(prompts), GREEDY),
        "embed, last": lambda: llm.embed(list(prompts), PoolingParams()),
        "embed, mean": lambda: llm.embed(list(prompts), PoolingParams(pooling="mean")),
    }


def rates_of(llm: LLM, count: int, length: int, rounds: int) -> dict[str, list[float]]:
    """Prompt tokens per second, a figure per round; the ways take turns."""
    compared = ways(llm, prompts_of(count, length, llm.info.vocab_size))
    rates: dict[str, list[float]] = {name: [] for name in compared}
    for number in range(-1, rounds):  # the first round warms up
        for name in rotated(list(compared), number):
            started = time.perf_counter()
            compared[name]()
            if number >= 0:
                rates[name].append(count * length / (time.perf_counter() - started))
    return rates


def table(shape: str, rates: dict[str, list[float]]) -> str:
    lines = []
    for name, measured in rates.items():
        ratio = estimate(paired_ratios(measured, rates[ANSWER]))
        lines.append(
            f"| {shape} | {name} | {estimate(measured).median:,.0f} "
            f"| {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", nargs="*", default=["16x256", "128x16"], metavar="PROMPTSxTOKENS")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    result: dict[str, dict[str, list[float]]] = {}
    settings: dict[str, object] = {"enable_prefix_caching": False, "max_model_len": 1024}
    settings |= {"threads": args.threads} if args.threads else {}
    print("| prompts x tokens | | tokens/s | next to generate, round by round |\n|---|---|---|---|")
    with LLM(args.model, **settings) as llm:
        for shape in args.shapes:
            count, length = map(int, shape.split("x"))
            result[shape] = rates_of(llm, count, length, args.rounds)
            print(table(shape, result[shape]))
        about = llm.info.describe()
    print(f"\n{about}")
    if args.json:
        args.json.write_text(json.dumps({"engine": about, "rates": result}, indent=1))


if __name__ == "__main__":
    main()
