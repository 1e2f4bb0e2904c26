"""What the prefix cache gives: hit rate, time to the first token and tokens per second, by policy and kind of match.

    python benchmarks/prefix.py [--model smollm2-135m] [--threads 2] [--rounds 3] [--kv-tokens 4096]

Three workloads of token ids from one seed per round: `system`, questions behind shared system prompts of uneven
popularity, all at once; `chat`, conversations whose turns each wait for the answer before; `tree`, prompts that branch
three times, all at once. Each runs under `fcfs` and `prefix`, with and without sub-block match, every time on an empty
cache in a KV memory that does not hold everything; settings take turns within a round. Then a prefix of 2,000 tokens,
cold and warm. Figures are medians over rounds; times to the first token are from arrival in the queue. Writes OUT.json
and OUT.md.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from octavo.bench.machine import hardware, versions
from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.core import EngineCore
from octavo.hub import resolve
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest


@dataclass(frozen=True)
class Turn:
    """One request of a conversation: what it adds to all before it, answers included."""

    token_ids: tuple[int, ...]
    output_len: int


Conversation = tuple[Turn, ...]
Make = Callable[["Words"], list[Conversation]]


class Words:
    """Random token ids."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self.chance = random.Random(seed)
        self._vocab_size = vocab_size

    def some(self, low: int, high: int) -> tuple[int, ...]:
        """Between `low` and `high` of them."""
        count = self.chance.randint(low, high)
        return tuple(self.chance.randrange(100, self._vocab_size) for _ in range(count))


def system_prompts(words: Words) -> list[Conversation]:
    """48 questions behind 8 system prompts, of which the first is asked most (weights 1, 1/2, 1/3, ...)."""
    prompts = [words.some(200, 900) for _ in range(8)]
    popularity = [1 / (rank + 1) for rank in range(len(prompts))]
    chosen = words.chance.choices(prompts, popularity, k=48)
    return [(Turn(prompt + words.some(10, 60), 16),) for prompt in chosen]


def chats(words: Words) -> list[Conversation]:
    """16 conversations of 4 turns."""
    return [(Turn(words.some(60, 300), 24), *(Turn(words.some(15, 60), 24) for _ in range(3))) for _ in range(16)]


def prompt_trees(words: Words) -> list[Conversation]:
    """One root, 4 branches, 4 leaves each, 3 questions each, in random order."""
    root = words.some(150, 250)
    prompts = []
    for _ in range(4):
        branch = root + words.some(100, 200)
        for _ in range(4):
            leaf = branch + words.some(60, 150)
            prompts += [leaf + words.some(10, 40) for _ in range(3)]
    words.chance.shuffle(prompts)
    return [(Turn(prompt, 16),) for prompt in prompts]


WORKLOADS: dict[str, Make] = {"system": system_prompts, "chat": chats, "tree": prompt_trees}


@dataclass(frozen=True)
class Setting:
    """One line of a table."""

    policy: str
    sub_block_match: bool

    @property
    def name(self) -> str:
        return f"{self.policy}, {'parts of blocks' if self.sub_block_match else 'whole blocks'}"

    def open(self, options: argparse.Namespace) -> "Engine":
        """An engine with this setting."""
        fields = {
            "model": options.model,
            "scheduling_policy": self.policy,
            "sub_block_match": self.sub_block_match,
            "threads": options.threads,
            "speculation": "off",
            "max_model_len": options.prefix_len + 560,
            "num_kv_blocks": 1 + options.kv_tokens // 16,
            "max_num_seqs": options.max_num_seqs,
        }
        core, info = build_core(EngineConfig.from_fields(fields), resolve(options.model), time.perf_counter)
        return Engine(core, info.vocab_size)


SETTINGS = tuple(Setting(policy, parts) for policy in ("fcfs", "prefix") for parts in (False, True))


@dataclass
class Engine:
    """A core, and what its requests have given so far."""

    core: EngineCore
    vocab_size: int
    ttft_s: list[float] = field(default_factory=list)
    _count: int = 0

    def run(self, conversations: Sequence[Conversation]) -> dict[str, float]:
        """Runs conversations to their ends, all first turns at once, on an empty cache; returns the figures."""
        assert self.core.reset_prefix_cache()
        self.ttft_s.clear()
        before, started = self.core.load().counters, time.perf_counter()
        live: dict[str, tuple[list[int], Conversation]] = {}
        for conversation in conversations:
            self.ask([], conversation, live)
        while self.core.has_work:
            for output in self.core.step():
                known, rest = live[output.request_id]
                known += output.new_token_ids
                if output.finish_reason is None:
                    continue
                assert output.error is None and output.stats is not None, output.error
                self.ttft_s.append((output.stats.first_token_s or 0) - output.stats.arrival_s)
                del live[output.request_id]
                if rest:
                    self.ask(known, rest, live)
        return self._figures(before, time.perf_counter() - started)

    def ask(
        self, known: list[int], conversation: Conversation, live: dict[str, tuple[list[int], Conversation]]
    ) -> None:
        """Queues the next turn of a conversation behind the tokens known so far, and puts it down in `live`."""
        turn, *rest = conversation
        prompt = [*known, *turn.token_ids]
        request_id = f"request-{self._count}"
        self._count += 1
        params = SamplingParams(temperature=0.0, max_tokens=turn.output_len, ignore_eos=True)
        refused = self.core.add(GenerateRequest(request_id=request_id, prompt_token_ids=prompt, params=params))
        assert refused is None, refused
        live[request_id] = (prompt, tuple(rest))

    def _figures(self, before: dict[str, float], elapsed_s: float) -> dict[str, float]:
        after = self.core.load().counters
        grown = {name: after[name] - before[name] for name in before}
        ttft = sorted(self.ttft_s)
        return {
            "hit_rate": grown["cached_tokens"] / grown["prefix_queries"],
            "copied_tokens": grown["copied_tokens"],
            "ttft_p50_ms": 1e3 * ttft[len(ttft) // 2],
            "ttft_p99_ms": 1e3 * ttft[min(len(ttft) - 1, int(len(ttft) * 0.99))],
            "output_tokens_per_s": grown["generation_tokens"] / elapsed_s,
            "computed_tokens": grown["computed_tokens"],
        }


def cold_and_warm(engine: Engine, words: Words, num_tokens: int) -> dict[str, float]:
    """Time to the first token of a prompt of so many tokens and a question: first, and again with another question."""
    prefix = words.some(num_tokens, num_tokens)
    assert engine.core.reset_prefix_cache()
    times = []
    for _ in range(2):
        engine.ttft_s.clear()
        live: dict[str, tuple[list[int], Conversation]] = {}
        engine.ask([], (Turn(prefix + words.some(16, 16), 2),), live)
        while engine.core.has_work:
            for output in engine.core.step():
                if output.finish_reason is not None:
                    assert output.stats is not None
                    times.append(1e3 * ((output.stats.first_token_s or 0) - output.stats.arrival_s))
    return {"cold_ttft_ms": times[0], "warm_ttft_ms": times[1], "warm_share": times[1] / times[0]}


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Figure by figure over the rounds."""
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds of everything."""
    engines = {setting: setting.open(options) for setting in SETTINGS}
    measured: dict[tuple[str, str], list[dict[str, float]]] = {}
    warm: list[dict[str, float]] = []
    for number in range(options.rounds):
        for workload, make in WORKLOADS.items():
            for setting, engine in engines.items():
                figures = engine.run(make(Words(options.seed + number, engine.vocab_size)))
                measured.setdefault((workload, setting.name), []).append(figures)
                print(f"round {number + 1}, {workload}, {setting.name}: {_shown(figures)}", file=sys.stderr)
        engine = engines[SETTINGS[1]]
        warm.append(cold_and_warm(engine, Words(options.seed + number, engine.vocab_size), options.prefix_len))
    for engine in engines.values():
        engine.core.close()
    return {
        "model": options.model,
        "threads": options.threads,
        "rounds": options.rounds,
        "kv_tokens": options.kv_tokens,
        "max_num_seqs": options.max_num_seqs,
        "prefix_len": options.prefix_len,
        "hardware": hardware(),
        "versions": versions(),
        "rows": [
            {"workload": workload, "setting": setting, **medians(rounds)}
            for (workload, setting), rounds in measured.items()
        ],
        "warm": medians(warm),
        "raw": [
            {"workload": workload, "setting": setting, "rounds": rounds}
            for (workload, setting), rounds in measured.items()
        ],
        "raw_warm": warm,
    }


def _shown(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items())


def as_markdown(result: dict[str, Any]) -> str:
    """The tables, with everything that the figures depend on."""
    warm = result["warm"]
    conditions = (
        f"{result['model']}, {result['hardware']['cpu']}, {result['threads']} threads, KV memory of "
        f"{result['kv_tokens']} tokens in blocks of 16, at most {result['max_num_seqs']} requests at one time, budget "
        f"1024, greedy; medians of {result['rounds']} interleaved rounds, each on an empty cache."
    )
    lines = [
        conditions,
        "",
        "| workload | setting | hit rate | copied tokens | TTFT p50, ms | p99, ms | output tokens/s | computed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['workload']} | {row['setting']} | {100 * row['hit_rate']:.1f} % | {row['copied_tokens']:.0f} | "
            f"{row['ttft_p50_ms']:.0f} | {row['ttft_p99_ms']:.0f} | {row['output_tokens_per_s']:.1f} | "
            f"{row['computed_tokens']:.0f} |"
        )
    lines.append("")
    lines.append(
        f"A prefix of {result['prefix_len']} tokens with a question of 16: {warm['cold_ttft_ms']:.0f} ms to the first "
        f"token cold, {warm['warm_ttft_ms']:.0f} ms warm ({100 * warm['warm_share']:.1f} %)."
    )
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a model by name or path")
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv-tokens", type=int, default=4096, help="size of the KV memory")
    parser.add_argument("--max-num-seqs", type=int, default=8, help="requests at one time")
    parser.add_argument("--prefix-len", type=int, default=2000, help="tokens of the prefix taken cold and warm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench-results/prefix"), help="without ending")
    return parser.parse_args()


def main() -> None:
    """Measures, writes, prints the tables."""
    options = parse()
    result = run(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    table = as_markdown(result)
    options.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
