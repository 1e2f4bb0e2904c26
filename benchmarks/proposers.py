"""What proposers cost: processor time per draft, accepted token and prompt, and memory, for 1, 16 and 256 requests.

Usage: python benchmarks/proposers.py [--context 8192] [--requests 1 16 256] [--json FILE]

Bound, set before measuring: a step of the smallest model takes about 5 ms alone; a draft and a token of one request
must take less than 1 % of that, 50 us. Contexts are random tokens of frequencies that fall as 1 / rank, with copied
passages, all different, so that caches are as cold as they are in an engine. Times are of this thread, the median of 30
rounds.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from octavo.decoding.speculation.build import Surroundings, proposer_named
from octavo.decoding.speculation.ngram import NgramProposer
from octavo.decoding.speculation.proposer import Proposer
from octavo.decoding.speculation.shared_texts import SharedSuffixProposer
from octavo.decoding.speculation.suffix import SuffixProposer
from octavo.request.params import SamplingParams

BOUND_US = 50.0
ROUNDS, DRAFTS = 30, 8
VOCAB = 50_000


@dataclass
class Known:
    """A request as proposers see it."""

    token_ids: list[int]
    num_prompt_tokens: int = 0
    params: SamplingParams = field(default_factory=SamplingParams)
    tenant: str = ""
    cache_salt: str | None = None


@dataclass
class Cost:
    """Of one proposer at one number of requests."""

    proposer: str
    requests: int
    context: int
    propose_us: float
    """Per request and step."""
    extend_us: float
    """Per request and step with one new token."""
    add_ms: float
    """Per request, when it comes."""
    kib: float | None
    """Per request; None where memory is not per request."""


PROPOSERS: dict[str, Callable[[], Proposer]] = {
    "ngram index": NgramProposer,
    "suffix automaton": SuffixProposer,
    "shared automaton": SharedSuffixProposer,
    "--speculation ngram": lambda: proposer_named("ngram", Surroundings()),
    "--speculation suffix": lambda: proposer_named("suffix", Surroundings()),
}


def text(rng: random.Random, length: int) -> list[int]:
    """Tokens whose frequencies fall as 1 / rank, a fifth of them copied from before in passages of 5 to 40."""
    tokens: list[int] = []
    while len(tokens) < length:
        if tokens and rng.random() < 0.01:
            start = rng.randrange(len(tokens))
            tokens += tokens[start : start + rng.randrange(5, 41)]
        else:
            tokens.append(int(VOCAB ** rng.random()))
    return tokens[:length]


def timed_us(call: Callable[[], object]) -> float:
    start = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - start) / 1000


def kib_of(proposer: Proposer, requests: int) -> float | None:
    if isinstance(proposer, NgramProposer | SuffixProposer):
        return round(proposer.num_bytes / requests / 1024, 1)
    return None


def extend(proposer: Proposer, new: Sequence[list[int]]) -> None:
    """Each slot gets its new tokens."""
    for slot, tokens in enumerate(new):
        proposer.extend(slot, tokens)


def cost_of(name: str, requests: int, context: int) -> Cost:
    """Measures one proposer."""
    rng, proposer = random.Random(requests), PROPOSERS[name]()
    for _ in range(20):
        proposer.add(0, Known([]))
        proposer.extend(0, text(rng, 2000))
        proposer.remove(0)
    prompts = [text(rng, context) for _ in range(requests)]
    adds = [timed_us(partial(proposer.add, slot, Known(prompt))) for slot, prompt in enumerate(prompts)]
    slots, most = list(range(requests)), [DRAFTS] * requests
    proposes, extends = [], []
    for _ in range(ROUNDS):
        proposes.append(timed_us(lambda: proposer.propose(slots, most)) / requests)
        new = [[prompts[slot][rng.randrange(context)]] for slot in slots]
        extends.append(timed_us(partial(extend, proposer, new)) / requests)
    return Cost(
        name,
        requests,
        context,
        round(statistics.median(proposes), 2),
        round(statistics.median(extends), 2),
        round(statistics.median(adds) / 1000, 3),
        kib_of(proposer, requests),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"bound: {BOUND_US:g} us per step\n")
    print("| proposer | requests | us per draft | us per token | us per step | ms per prompt | KiB per request |")
    print("|---|---|---|---|---|---|---|")
    costs = []
    for name in PROPOSERS:
        for requests in options.requests:
            cost = cost_of(name, requests, options.context)
            costs.append(cost)
            step = (cost.propose_us + cost.extend_us) * requests
            cells = (name, requests, cost.propose_us, cost.extend_us, f"{step:.1f}", cost.add_ms, cost.kib or "")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"bound_us": BOUND_US, "costs": [asdict(c) for c in costs]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
