"""What speculation gives and costs: the same answers with it and without, by turns, in one process.

    python benchmarks/speculation.py [--models qwen2.5-coder-0.5b smollm2-135m] [--settings auto] [--rounds 9]
        [--workloads "code edit" ...] [--batches 1 4 16 32] [--threads 2] [--seed N] [--append]
        [--llama-server PATH [--llama-gguf NAME=FILE ...] [--peer-only]]
    python benchmarks/speculation.py --profile [--drafts 1 2 4 8 16] [--context 300] [--seconds 60]

Two engines of a model that differ only in `--speculation`: `off`, and each of --settings (`auto`, `suffix:4`: at most 4
drafts). In a round every kind of work of draft_crowds.py is answered at every batch size by each engine, one after the
other, another one first each time; a ratio is taken within a round and a cell. Rounds ask different questions, as far
as there are 32. All prompts stand in the engines' prefix caches before the first round, so what is timed is decoding.
Each batch comes from a tenant of its own: proposers that learn from answers that are over (`suffix`, `auto`) have seen
no answer to the same question, which would be an unfair upper bound; prompts are shared all the same. A round before
the first, which does not count, lets `auto` learn what steps take. The tokens must be equal: where they are not the
program ends with status 1.

Answers end where the model ends them, at most after SIZES tokens. With --cpu-time (and --threads 1) the clock is this
process's processor time, which a busy machine hardly bends. Writes OUT_MODEL.json and OUT_MODEL.md, whatever ends it;
--append adds rounds to what OUT_MODEL.json has, so that --models, --workloads, --batches and --rounds cut the whole.

--llama-server adds a comparison with the speculation of llama.cpp's server at batch 1, on the same file and on others
of --llama-gguf: see speculation_peer.py.

--profile: what a step with drafts takes next to one without, by rows: see verify_steps.py.
"""

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import speculation_peer
import verify_steps
from comparison import progress
from draft_crowds import CROWD, CROWDS, Question
from engine_process import machine_cpu_seconds
from pairing import rotated
from spec_engine import Answers, SpecEngine
from speculation_report import OFF, PROCESSOR, WALL, as_markdown

from octavo.bench.machine import hardware, versions
from octavo.config import EngineConfig
from octavo.engine.words import load_words
from octavo.hub import resolve

RESULTS = Path(__file__).with_name("results")
MODELS = ("qwen2.5-coder-0.5b", "smollm2-135m")


@dataclass(frozen=True)
class Size:
    """What is answered in a round at one batch size."""

    batches: int
    """One after the other; figures are sums."""
    max_tokens: int


SIZES = {1: Size(2, 128), 4: Size(1, 128), 16: Size(1, 64), 32: Size(1, 48)}
"""Batch size -> how much of it; others as 32."""


def size_of(batch: int) -> Size:
    """What a round answers at a batch size."""
    return SIZES.get(batch, SIZES[32])


def questions_of(workload: str, batch: int, number: int) -> list[Question]:
    """The `number`-th batch of a kind of work: the next ones in the circle of all its questions."""
    crowd = CROWDS[workload]
    return [crowd[(number * batch + place) % CROWD] for place in range(batch)]


class Bench:
    """The engines of one model."""

    def __init__(self, options: argparse.Namespace, model: str) -> None:
        clock = time.process_time if options.cpu_time else time.perf_counter
        self._seed: int | None = options.seed
        self._engines = {
            setting: SpecEngine(model, setting, threads=options.threads, max_num_seqs=max(options.batches), clock=clock)
            for setting in (OFF, *options.settings)
        }
        words = self._engines[OFF].words
        self._prompts = {
            question.text: words.render_chat([{"role": "user", "content": question.text}])
            for workload in options.workloads
            for question in CROWDS[workload]
        }

    def warm_up(self, workloads: Sequence[str], batches: Sequence[int]) -> None:
        """Puts all prompts into the caches, then runs every cell, mostly with other questions than the first rounds:
        `auto` learns what steps take on this machine."""
        for engine in self._engines.values():
            for workload in workloads:
                for number in range(-(-CROWD // max(batches))):
                    self._ask(engine, questions_of(workload, max(batches), number), 1)
            for batch in batches:
                for workload in workloads:
                    self._ask(engine, questions_of(workload, batch, CROWD // batch - 1), size_of(batch).max_tokens)

    def measure(self, workload: str, batch: int, number: int) -> dict[str, dict[str, Any]]:
        """One cell of a round by all engines.

        Raises:
            SystemExit: engines give different tokens.
        """
        size = size_of(batch)
        made: dict[str, list[Answers]] = {}
        records = {}
        for setting in rotated(list(self._engines), number):
            engine = self._engines[setting]
            others, own = machine_cpu_seconds(), time.process_time()
            made[setting] = [
                self._ask(engine, questions_of(workload, batch, number * size.batches + i), size.max_tokens)
                for i in range(size.batches)
            ]
            own, others = time.process_time() - own, machine_cpu_seconds() - others
            records[setting] = record_of(made[setting]) | {"others_cpu_s": max(0.0, others - own)}
        require_equal(made, f"{workload}, batch {batch}, round {number + 1}")
        return records

    def _ask(self, engine: SpecEngine, questions: Sequence[Question], max_tokens: int) -> Answers:
        seeds = [None if self._seed is None else self._seed + place for place in range(len(questions))]
        params = [question.params(max_tokens, seed) for question, seed in zip(questions, seeds, strict=True)]
        return engine.answer([self._prompts[question.text] for question in questions], params)

    def facts(self) -> dict[str, Any]:
        info = self._engines[OFF].info
        return {"isa": info.isa, "threads": info.threads, "max_num_batched_tokens": info.max_num_batched_tokens}

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()


def record_of(answers: Sequence[Answers]) -> dict[str, Any]:
    """Sums over the batches of a cell."""
    return {
        "tokens": sum(one.num_tokens for one in answers),
        "elapsed_s": sum(one.elapsed_s for one in answers),
        "request_steps": sum(one.request_steps for one in answers),
        **{name: sum(one.counters[name] for one in answers) for name in answers[0].counters},
    }


def require_equal(made: dict[str, list[Answers]], where: str) -> None:
    """
    Raises:
        SystemExit: an engine has drawn other tokens than the one that does not speculate.
    """
    expected = [tokens for one in made[OFF] for tokens in one.tokens]
    for setting, answers in made.items():
        given = [tokens for one in answers for tokens in one.tokens]
        for place, (ours, theirs) in enumerate(zip(given, expected, strict=True)):
            if ours != theirs:
                at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), "its end")
                raise SystemExit(f"{where}: with {setting} answer {place} is another one from token {at} on")


def begin(options: argparse.Namespace, model: str) -> dict[str, Any]:
    """A result without figures, or with those of an earlier run."""
    result: dict[str, Any] = {
        "model": model,
        "threads": options.threads,
        "clock": PROCESSOR if options.cpu_time else WALL,
        "seed": options.seed,
        "hardware": hardware(),
        "versions": versions(),
        "command": command_of(options),
        "sizes": {str(batch): asdict(size_of(batch)) for batch in options.batches},
        "cells": {},
    }
    path = beside(options, model, ".json")
    if options.append and path.exists():
        kept = json.loads(path.read_text())
        same = ("model", "threads", "clock", "seed")
        if [kept[name] for name in same] != [result[name] for name in same]:
            raise SystemExit(f"--append: {path} differs in one of {', '.join(same)}")
        result["sizes"] = kept["sizes"] | result["sizes"]
        result["cells"] = kept["cells"]
        result |= {name: kept[name] for name in ("peer",) if name in kept}
    return result


def run(options: argparse.Namespace, model: str, result: dict[str, Any]) -> None:
    """Adds rounds to the cells of a result."""
    deadline = time.monotonic() + options.stop_after
    bench = Bench(options, model)
    result["engine"] = bench.facts()
    try:
        bench.warm_up(options.workloads, options.batches)
        progress(f"{model} is warm")
        cells = [(workload, batch) for batch in options.batches for workload in options.workloads]
        for _ in range(options.rounds):
            for workload, batch in cells:
                if time.monotonic() > deadline:
                    return
                done = result["cells"].setdefault(f"{workload}/{batch}", [])
                done.append(bench.measure(workload, batch, len(done)))
                progress(f"{model}, {workload}, batch {batch}, round {len(done)}: {summary(done[-1])}")
    finally:
        bench.close()


def run_peer(options: argparse.Namespace, model: str, result: dict[str, Any]) -> None:
    """The comparison with llama.cpp, in place of an earlier one."""
    files = resolve(model)
    others = dict(one.split("=", 1) for one in options.llama_gguf)
    peer = speculation_peer.Peer(
        options.llama_server, {"same file": files.files[0], **{name: Path(path) for name, path in others.items()}}
    )
    words = load_words(EngineConfig.from_fields({"model": model}), files)
    engines = speculation_peer.specs(files.files[0], peer, options.settings, options.threads)
    prompts = speculation_peer.prompts_of(words.render_chat)
    speculation_peer.compare(engines, prompts, options.peer_rounds, result.setdefault("peer", {}))


def summary(records: dict[str, dict[str, Any]]) -> str:
    """A line for whoever waits."""
    off = records[OFF]["elapsed_s"]
    return ", ".join(f"{name} {one['elapsed_s']:.2f} s ({off / one['elapsed_s']:.2f})" for name, one in records.items())


def beside(options: argparse.Namespace, model: str, suffix: str) -> Path:
    """`with_suffix` would take the end of a name such as `qwen2.5-coder-0.5b` for one."""
    out: Path = options.out
    return out.with_name(f"{options.out.name}_{Path(model).name}{suffix}")


def command_of(options: argparse.Namespace) -> str:
    """The command line without this machine's paths."""
    words = ["python", "benchmarks/speculation.py"]
    for name, value in vars(options).items():
        if value in (None, False) or value == DEFAULTS.get(name):
            continue
        words.append(f"--{name.replace('_', '-')}")
        if name in ("out", "llama_server"):
            words.append("PATH")
        elif name == "llama_gguf":
            words += [f"{one.split('=')[0]}=PATH" for one in value]
        elif value is not True:
            words += [str(one) for one in (value if isinstance(value, list) else [value])]
    return shlex.join(words)


def page(result: dict[str, Any]) -> str:
    """All tables."""
    if not result.get("peer", {}).get("rounds"):
        return as_markdown(result)
    heading = f"## Next to llama.cpp's server, one request at a time\n\n{len(result['peer']['rounds'])} rounds.\n"
    return f"{as_markdown(result)}\n{heading}\n{speculation_peer.table(result['peer'])}\n"


def write(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Keeps figures and tables."""
    beside(options, result["model"], ".json").write_text(json.dumps(result, indent=1) + "\n")
    beside(options, result["model"], ".md").write_text(page(result))


def profile(options: argparse.Namespace) -> None:
    """Prints and keeps what steps with drafts take."""
    for model in options.models:
        steps = verify_steps.measure(
            model,
            threads=options.threads,
            batches=options.batches,
            drafts=options.drafts,
            context=options.context,
            seconds=options.seconds,
        )
        table = verify_steps.as_markdown(steps)
        print(f"{model}, {options.threads} threads, contexts of {options.context} tokens\n\n{table}", flush=True)
        kept = {
            "model": model,
            "threads": options.threads,
            "context": options.context,
            "hardware": hardware(),
            "versions": versions(),
            "command": command_of(options),
            "steps": verify_steps.as_json(steps),
        }
        beside(options, f"steps_{Path(model).name}", ".json").write_text(json.dumps(kept, indent=1) + "\n")


DEFAULTS: dict[str, Any] = {
    "models": list(MODELS),
    "settings": ["auto"],
    "rounds": 9,
    "workloads": list(CROWDS),
    "batches": list(SIZES),
    "threads": hardware()["usable_cores"],
    "drafts": [1, 2, 4, 8, 16],
    "context": 300,
    "seconds": 60.0,
    "stop_after": float("inf"),
    "llama_gguf": [],
    "peer_rounds": 5,
    "out": RESULTS / "speculation",
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", help="by name or path")
    parser.add_argument("--settings", nargs="+", help="next to off: auto, ngram, suffix, ..., with :K for K drafts")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--workloads", nargs="+", choices=list(CROWDS))
    parser.add_argument("--batches", type=int, nargs="+", choices=range(1, CROWD + 1), metavar="N")
    parser.add_argument("--threads", type=int, help="default: all usable cores")
    parser.add_argument("--seed", type=int, help="draw at temperature 0.8 with seeds from here on; default: greedy")
    parser.add_argument("--cpu-time", action="store_true", help="measure this process's processor time")
    parser.add_argument("--stop-after", type=float, help="seconds per model; nothing new begins later")
    parser.add_argument("--append", action="store_true", help="keep the rounds of OUT_MODEL.json")
    parser.add_argument("--profile", action="store_true", help="instead: what a step with drafts takes")
    parser.add_argument("--drafts", type=int, nargs="+", help="--profile: of each request")
    parser.add_argument("--context", type=int, help="--profile: tokens of each request")
    parser.add_argument("--seconds", type=float, help="--profile: about so long per model")
    parser.add_argument("--llama-server", metavar="PATH", help="llama.cpp's server: compare with it, too")
    parser.add_argument("--llama-gguf", nargs="+", metavar="NAME=FILE", help="what it runs beside the same file")
    parser.add_argument("--peer-rounds", type=int, help="of that comparison")
    parser.add_argument("--peer-only", action="store_true", help="only that comparison")
    parser.add_argument("--out", type=Path, help="without model and ending")
    parser.set_defaults(**DEFAULTS)
    return parser.parse_args()


def main() -> None:
    """Measures, writes, prints the tables."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # what is measured is written all the same
    options = parse()
    if options.cpu_time and options.threads != 1:
        raise SystemExit("--cpu-time needs --threads 1: the work of several threads takes less than the sum of theirs")
    if options.peer_only and options.llama_server is None:
        raise SystemExit("--peer-only needs --llama-server PATH")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.profile:
        profile(options)
        return
    for model in options.models:
        result = begin(options, model)
        try:
            if not options.peer_only:
                run(options, model, result)
            if options.llama_server is not None:
                run_peer(options, model, result)
        finally:
            write(options, result)
        print(page(result), flush=True)


if __name__ == "__main__":
    main()
