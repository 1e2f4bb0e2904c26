"""Microseconds per row of the native sampler, thread CPU time (20th percentile), one thread.

Usage: python benchmarks/sampling.py [--vocab 49152 262144] [--isa avx2] [--only WORD]

Rows: `model` is normal noise (sigma 3.5) with twenty tokens at 24 to 14, like the rows of small language models, whose
0.9 nucleus holds a few tokens; `wide` is the noise alone, whose 0.9 nucleus holds thousands.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from octavo._native import ThreadPool
from octavo.decoding.processors.contract import ProcessedRequest
from octavo.decoding.sampler import NativeSampler
from octavo.execution.protocols import TokenMasks
from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec

ROWS = 8
Fields = dict[str, Any]
"""Of `SamplingParams`."""
CASES: dict[str, Fields] = {
    "greedy": {"temperature": 0.0},
    "greedy + 1000 seen tokens penalised": {"temperature": 0.0, "repetition_penalty": 1.1, "frequency_penalty": 0.1},
    "greedy + logit_bias of 100 ids": {"temperature": 0.0, "logit_bias": {100 * i: 1.0 for i in range(100)}},
    "temperature 1": {},
    "temperature 0.7": {"temperature": 0.7},
    "min_p 0.05": {"min_p": 0.05},
    "top_k 50": {"top_k": 50},
    "top_k 5000": {"top_k": 5000},
    "top_p 0.9": {"top_p": 0.9},
    "top_k 50, top_p 0.9": {"top_k": 50, "top_p": 0.9},
    "greedy + logprobs 0": {"temperature": 0.0, "logprobs": 0},
    "greedy + logprobs 5": {"temperature": 0.0, "logprobs": 5},
    "greedy + logprobs 20": {"temperature": 0.0, "logprobs": 20},
    "greedy + logprobs of 128 named ids": {
        "temperature": 0.0,
        "logprobs": 0,
        "logprob_token_ids": tuple(range(0, 49152, 384)),
    },
    "top_p 0.9 + logprobs 5": {"top_p": 0.9, "logprobs": 5},
    "greedy + a processor that does nothing": {"temperature": 0.0, "logits_processors": {"nothing": {}}},
    "greedy + a budget of reasoning": {
        "temperature": 0.0,
        "reasoning": ReasoningSpec(ends=((7,),), forced_end=(7,), budget=10**6, is_open=True),
    },
}
MASKS = {
    "a mask of 20 ids": 20,
    "a mask of half the ids, scattered": None,
    "a mask of all ids": -1,
}
"""Number of random ids allowed; None: every other one at random; -1: all."""


class Nothing:
    """A logits processor."""

    def check(self, args: Mapping[str, object]) -> None:
        pass

    def process(self, requests: Sequence[ProcessedRequest], logits: np.ndarray) -> None:
        pass


def make_mask(vocab: int, count: int | None) -> TokenMasks:
    rng = np.random.default_rng(3)
    allowed = rng.random(32 * -(-vocab // 32)) < 0.5
    if count is not None:
        allowed[:] = count < 0
        allowed[rng.integers(0, vocab, max(0, count))] = True
    words = np.packbits(allowed, bitorder="little").view(np.int32)
    return TokenMasks(words[None], np.zeros(ROWS, np.int32))


def make_logits(vocab: int, kind: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal((ROWS, vocab)) * 3.5).astype(np.float32)
    if kind == "model":
        for row in logits:
            row[rng.integers(0, vocab, 20)] = np.linspace(24, 14, 20, dtype=np.float32)
    return logits


def cpu_us(call: Callable[[], object], repeats: int = 41) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        start = time.thread_time()
        call()
        seconds.append(time.thread_time() - start)
    return sorted(seconds)[repeats // 5] * 1e6


def measure(vocab: int, kind: str, isa: str, fields: Fields, masks: TokenMasks | None = None) -> float:
    sampler = NativeSampler(ThreadPool(1), vocab, vocab, isa, {"nothing": Nothing()})
    prompt = np.random.default_rng(2).integers(0, vocab, 1000).tolist()
    for slot in range(ROWS):
        sampler.add(slot, SamplingParams(seed=slot, max_tokens=None, **fields), [0], prompt, [])
    logits, slots = make_logits(vocab, kind), np.arange(ROWS, dtype=np.int32)
    return cpu_us(lambda: sampler.sample(logits, slots, masks)) / ROWS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, nargs="+", default=[49152, 262144])
    parser.add_argument("--isa", default="avx2")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    args = parser.parse_args()
    columns = [(vocab, kind) for vocab in args.vocab for kind in ("model", "wide")]
    print(f"| us per row, {args.isa} | " + " | ".join(f"{vocab} {kind}" for vocab, kind in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for name, fields in ((name, fields) for name, fields in CASES.items() if args.only in name):
        cells = [f"{measure(vocab, kind, args.isa, fields):.1f}" for vocab, kind in columns]
        print(f"| {name} | " + " | ".join(cells) + " |")
    if args.only:
        return
    for name, count in MASKS.items():
        cells = [f"{measure(v, kind, args.isa, {}, make_mask(v, count)):.1f}" for v, kind in columns]
        print(f"| temperature 1, {name} | " + " | ".join(cells) + " |")
    scores = []
    for vocab, kind in columns:
        sampler, logits = NativeSampler(ThreadPool(1), vocab, vocab, args.isa), make_logits(vocab, kind)
        targets = np.arange(ROWS, dtype=np.int32)
        scores.append(f"{cpu_us(partial(sampler.score, logits, targets, 5)) / ROWS:.1f}")
    print("| score, 5 logprobs | " + " | ".join(scores) + " |")


if __name__ == "__main__":
    main()
