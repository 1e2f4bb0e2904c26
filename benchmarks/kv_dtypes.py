"""What the number format of K and V gives and costs: room, speed at many long contexts, and quality.

    python benchmarks/kv_dtypes.py [--model smollm2-135m] [--dtypes fp16 int8] [--concurrent 32] [--context 1000]
                                   [--steps 48] [--rounds 5] [--threads 2] [--out OUT]
    python benchmarks/kv_dtypes.py --quality [--models smollm2-135m ...] [--dtypes fp16 bf16 int8 fp8] [--out OUT]

Speed: every format gets the KV memory that `--concurrent` requests of `--context` + `--steps` tokens take in the first
format. A figure is the decode rate by the median step in which all requests decode; prompts are in the prefix cache
since a round that does not count. With one thread the clock is that of its CPU time. Measured with `--concurrent`
requests and with as many as fit; formats take turns within a round, ratios are taken round by round. Quality: against
the same engine with fp32, on the texts and prompts of tests/data/golden: mean NLL of the texts, share of positions with
the same most probable token, and how many greedy tokens a free continuation shares with that of fp32. Writes OUT.json
and OUT.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pairing import estimate, paired_ratios, rotated

from octavo import LLM
from octavo.bench.datasets import random_prompts
from octavo.bench.machine import hardware, versions
from octavo.bench.steps import BLOCK_SIZE, layout_of
from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.core import EngineCore
from octavo.engine.output import EngineInfo
from octavo.execution.loader import open_checkpoint
from octavo.execution.weights import load_model
from octavo.hub import resolve
from octavo.kv.spec import KVDtype
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "data" / "golden"
MODELS = {"smollm2-135m": "smollm2", "gemma3-270m": "gemma3", "qwen2.5-coder-0.5b": "qwen2"}
"""Names under which models have golden data."""
EXACT = KVDtype.FP32
SLACK = 4
"""Tokens that a request may decode while others still wait for their first."""


# ---- speed


@dataclass
class Engine:
    """A core whose K and V have one number format."""

    core: EngineCore
    info: EngineInfo
    clock: Callable[[], float]
    _count: int = 0

    @classmethod
    def open(cls, options: argparse.Namespace, dtype: str, memory: dict[str, int]) -> "Engine":
        """`memory`: the field of the engine's config that sizes the KV memory."""
        fields = {
            "model": options.model,
            "kv_cache_dtype": dtype,
            "threads": options.threads,
            "block_size": BLOCK_SIZE,
            "max_model_len": options.context + options.steps + SLACK,
            "max_num_seqs": 8 * options.concurrent,
            "admission_conservativeness": 1.0,
            "speculation": "off",  # a step is a token of each request
            "sub_block_match": False,  # would hold blocks that it copies from, in a memory that is just full
            **memory,
        }
        core, info = build_core(EngineConfig.from_fields(fields), resolve(options.model), time.perf_counter)
        return cls(core, info, time.thread_time if options.threads == 1 else time.perf_counter)

    def decode_rate(self, prompts: Sequence[list[int]], steps: int) -> float:
        """Tokens per second of all requests together, by the median of the steps in which all of them decode."""
        seconds = self.run(prompts, steps)
        if not seconds:
            raise SystemExit(f"{len(prompts)} requests never decoded all in one step: raise --steps")
        return len(prompts) / median(seconds)

    def run(self, prompts: Sequence[list[int]], steps: int) -> list[float]:
        """Answers prompts to their ends; returns the seconds of each step in which all of them decoded."""
        params = SamplingParams(temperature=0.0, max_tokens=steps + SLACK, ignore_eos=True)
        known: dict[str, int] = {}
        for prompt in prompts:
            self._count += 1
            known[f"request-{self._count}"] = 0
            request = GenerateRequest(request_id=f"request-{self._count}", prompt_token_ids=list(prompt), params=params)
            refused = self.core.add(request)
            assert refused is None, refused
        seconds: list[float] = []
        while self.core.has_work:
            started = self.clock()
            if self._step(known) == len(prompts) and min(known.values()) > 1:
                seconds.append(self.clock() - started)
        return seconds

    def _step(self, known: dict[str, int]) -> int:
        outputs = self.core.step()
        for output in outputs:
            assert output.error is None, output.error
            known[output.request_id] += len(output.new_token_ids)
        return len(outputs)


def open_all(options: argparse.Namespace) -> dict[str, Engine]:
    """One engine per format, with equal bytes."""
    first = options.dtypes[0]
    program, _ = load_model(open_checkpoint(resolve(options.model).files))
    length = options.context + options.steps + SLACK
    blocks = options.concurrent * layout_of(program.cache_layers, 1).blocks_per_request(length, max_step_tokens=1)
    engines = {first: Engine.open(options, first, {"num_kv_blocks": 1 + blocks})}
    num_bytes = engines[first].info.kv_bytes
    for dtype in options.dtypes[1:]:
        engines[dtype] = Engine.open(options, dtype, {"kv_cache_memory_bytes": num_bytes})
    return engines


def run_speed(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds of all formats."""
    engines = open_all(options)
    counts = {dtype: engine.info.num_full_length_requests for dtype, engine in engines.items()}
    vocab_size = engines[options.dtypes[0]].info.vocab_size
    prompts = random_prompts(max(*counts.values(), options.concurrent), options.context, vocab_size, seed=1)
    cases = [(dtype, count) for dtype, most in counts.items() for count in sorted({options.concurrent, most})]
    for dtype, engine in engines.items():
        engine.run(prompts[: counts[dtype]], 1)
    rounds: list[dict[str, float]] = []
    for number in range(options.rounds):
        measured = {}
        for dtype, count in rotated(cases, number):
            measured[f"{dtype}, {count}"] = engines[dtype].decode_rate(prompts[:count], options.steps)
        rounds.append(measured)
        print(f"round {number + 1}: {measured}", file=sys.stderr)
    infos = {dtype: engine.info for dtype, engine in engines.items()}
    for engine in engines.values():
        engine.core.close()
    return {
        "model": options.model,
        "threads": options.threads,
        "concurrent": options.concurrent,
        "context": options.context,
        "steps": options.steps,
        "isa": infos[options.dtypes[0]].isa,
        "hardware": hardware(),
        "versions": versions(),
        "formats": {
            dtype: {
                "bytes_per_token": info.kv_bytes_per_token,
                "kv_bytes": info.kv_bytes,
                "requests_that_fit": info.num_full_length_requests,
            }
            for dtype, info in infos.items()
        },
        "rounds": rounds,
    }


def speed_table(result: dict[str, Any]) -> str:
    """One line per format and number of requests, against the first format."""
    rounds, formats = result["rounds"], result["formats"]
    first = next(iter(formats))
    basis_name = f"{first}, {result['concurrent']}"
    basis = [one[basis_name] for one in rounds]
    heading = (
        f"{result['model']}, {result['hardware']['cpu']}, {result['threads']} threads ({result['isa']}), contexts of "
        f"{result['context']:,} tokens and {result['steps']} decoded, {formats[first]['kv_bytes'] / 1e6:.0f} MB of KV "
        f"memory; medians of {len(rounds)} interleaved rounds, ratios round by round."
    )
    lines = [
        heading,
        "",
        f"| format | bytes per token | requests that fit | at one time | tokens/s | against {basis_name} |",
        "|---|---|---|---|---|---|",
    ]
    for name in rounds[0]:
        dtype, count = name.split(", ")
        rates = [one[name] for one in rounds]
        ratio = estimate(paired_ratios(rates, basis))
        lines.append(
            f"| {dtype} | {formats[dtype]['bytes_per_token']:,} | {formats[dtype]['requests_that_fit']} | {count} | "
            f"{estimate(rates).median:.0f} | {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] |"
        )
    return "\n".join(lines) + "\n"


# ---- quality


@dataclass(frozen=True)
class Prompts:
    """What a model is asked."""

    texts: list[list[int]]
    greedy: list[list[int]]

    @classmethod
    def of(cls, model: str, text_ids: int) -> "Prompts":
        """Texts are cut to `text_ids` tokens."""
        name = MODELS[model]
        texts = [row["ids"][:text_ids] for row in _lines("perplexity") if row["model"] == name]
        greedy = [row["prompt_ids"] for kind in ("greedy", "long") for row in _lines(f"{kind}_{name}")]
        return cls(texts, [ids for ids in greedy if 1 < len(ids) <= text_ids])


def _lines(name: str) -> list[dict[str, Any]]:
    with (GOLDEN / f"{name}.jsonl").open(encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class Answers:
    """What a model says with one format."""

    logprobs: list[float]
    """Of every token of the texts but the first of each."""
    best: list[int]
    """The most probable token in each of their places."""
    greedy: list[list[int]]
    """Continuations."""

    @classmethod
    def of(cls, model: str, dtype: str, prompts: Prompts, options: argparse.Namespace) -> "Answers":
        length = max(map(len, [*prompts.texts, *prompts.greedy])) + options.greedy_tokens
        fields = {"threads": options.threads, "max_model_len": length, "kv_cache_dtype": dtype, "max_num_seqs": 16}
        scoring = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1, ignore_eos=True)
        greedy = SamplingParams(temperature=0.0, max_tokens=options.greedy_tokens, ignore_eos=True)
        with LLM(model, **fields) as llm:
            scored = llm.generate(prompts.texts, scoring)
            continued = llm.generate(prompts.greedy, greedy)
        rows = [row for output in scored for row in output.prompt_logprobs or () if row is not None]
        return cls(
            logprobs=[row.logprobs[0] for row in rows],
            best=[row.token_ids[1] for row in rows],
            greedy=[list(output.outputs[0].token_ids) for output in continued],
        )

    def against(self, exact: "Answers") -> dict[str, float]:
        """The figures of a format."""
        shared = [_shared(mine, theirs) for mine, theirs in zip(self.greedy, exact.greedy, strict=True)]
        differences = [abs(a - b) for a, b in zip(self.logprobs, exact.logprobs, strict=True)]
        return {
            "nll": -sum(self.logprobs) / len(self.logprobs),
            "nll_difference": (sum(exact.logprobs) - sum(self.logprobs)) / len(self.logprobs),
            "mean_logprob_difference": sum(differences) / len(differences),
            "same_best": sum(a == b for a, b in zip(self.best, exact.best, strict=True)) / len(self.best),
            "same_answers": sum(a == b for a, b in zip(self.greedy, exact.greedy, strict=True)) / len(self.greedy),
            "shared_greedy_tokens": sum(shared) / sum(map(len, exact.greedy)),
        }


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def run_quality(options: argparse.Namespace) -> dict[str, Any]:
    """All models in all formats."""
    rows = []
    for model in options.models:
        prompts = Prompts.of(model, options.text_ids)
        exact = Answers.of(model, EXACT, prompts, options)
        for dtype in (EXACT, *(dtype for dtype in options.dtypes if dtype != EXACT)):
            answers = exact if dtype == EXACT else Answers.of(model, dtype, prompts, options)
            rows.append({"model": model, "dtype": str(dtype), "positions": len(exact.best), **answers.against(exact)})
            print(rows[-1], file=sys.stderr)
    return {
        "text_ids": options.text_ids,
        "greedy_tokens": options.greedy_tokens,
        "hardware": hardware(),
        "versions": versions(),
        "rows": rows,
    }


def quality_table(result: dict[str, Any]) -> str:
    """One line per model and format."""
    heading = (
        f"Texts of tests/data/golden up to {result['text_ids']:,} tokens, {result['greedy_tokens']} greedy tokens "
        "behind each prompt there; against fp32. Shared: greedy tokens until the first other one."
    )
    lines = [
        heading,
        "",
        "| model | format | mean NLL | difference | mean logprob off by | same best token | same answers | shared |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['model']} | {row['dtype']} | {row['nll']:.4f} | {row['nll_difference']:+.4f} | "
            f"{row['mean_logprob_difference']:.4f} | {100 * row['same_best']:.2f} % | "
            f"{100 * row['same_answers']:.0f} % | "
            f"{100 * row['shared_greedy_tokens']:.0f} % |"
        )
    return "\n".join(lines) + "\n"


# ---- command line


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quality", action="store_true", help="measure quality instead of speed")
    parser.add_argument("--dtypes", nargs="+", choices=[dtype.value for dtype in KVDtype])
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--model", default="smollm2-135m", help="speed: a model by name or path")
    parser.add_argument("--concurrent", type=int, default=32, help="speed: requests at one time")
    parser.add_argument("--context", type=int, default=1000, help="speed: tokens of each prompt")
    parser.add_argument("--steps", type=int, default=48, help="speed: tokens that are measured of each request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS, help="quality: models")
    parser.add_argument("--text-ids", type=int, default=1000, help="quality: most tokens of a text or prompt")
    parser.add_argument("--greedy-tokens", type=int, default=64, help="quality: length of a continuation")
    parser.add_argument("--out", type=Path, default=Path("bench-results/kv_dtypes"), help="without ending")
    options = parser.parse_args()
    options.dtypes = options.dtypes or (["fp16", "bf16", "int8", "fp8"] if options.quality else ["fp16", "int8"])
    return options


def main() -> None:
    """Measures, writes, prints the table."""
    options = parse()
    result = run_quality(options) if options.quality else run_speed(options)
    table = quality_table(result) if options.quality else speed_table(result)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
