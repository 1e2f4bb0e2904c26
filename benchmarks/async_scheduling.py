"""What planning a step ahead gives: tokens per second with and without it, side by side.

    python benchmarks/async_scheduling.py [--model smollm2-135m] [--batch 1 4 16 32] [--context 200] [--steps 40]
                                          [--rounds 7] [--threads 2 1] [--between wire text] [--json OUT.json]

Two engine cores of one model run in this process, one that plans when the step before is done and one that plans ahead.
They take turns, round by round, the first one alternating: `--batch` requests decode greedily around `--context` tokens
for `--steps` steps. Between steps comes what comes in life: `wire`, a served core encodes its outputs; `text`, an `LLM`
detokenises them. A ratio is taken within each round, so that what slows a whole round cancels; shown are medians, and
the smallest and largest ratio. Also shown: how long a request that comes while others decode waits for its first token.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from step_cost import prepared_requests

from octavo.bench.machine import hardware, versions
from octavo.config import EngineConfig
from octavo.engine import wire
from octavo.engine.build import build_core
from octavo.engine.core import EngineCore
from octavo.engine.input import InputProcessor, PreparedRequest
from octavo.engine.output_processor import RequestStream
from octavo.engine.words import load_words
from octavo.hub import resolve
from octavo.request.outputs import RequestOutput

Between = Callable[[list[RequestOutput]], object]
"""What is done with the outputs of a step before the next call of the core."""


class Engine:
    """A core in one of the two modes, with what makes requests for it."""

    def __init__(self, model: str, threads: int, ahead: bool, max_batch: int) -> None:
        fields = {"model": model, "threads": threads, "async_scheduling": ahead, "max_num_seqs": max(64, max_batch + 1)}
        fields["speculation"] = "off"  # as many drafts as paid would differ from run to run
        config = EngineConfig.from_fields(fields)
        files = resolve(model)
        self.core, info = build_core(config, files, time.perf_counter)
        self.words = load_words(config, files)
        self.info = self.words.complete(info)
        self.inputs = InputProcessor(self.info, self.words.tokenizer, default_seed=0)

    def between(self, kind: str, requests: Sequence[PreparedRequest]) -> Between:
        if kind == "wire":
            return wire.encoder.encode
        streams = [RequestStream(request, self.words.tokenizer) for request in requests]
        stream_by_id = {choice.request_id: stream for stream in streams for choice in stream.request.choices}
        return lambda outputs: [stream_by_id[output.request_id].push(output) for output in outputs]


def decode(engine: Engine, batch: int, context: int, steps: int, kind: str) -> float:
    """Seconds per step while all requests decode."""
    core = engine.core
    requests = prepared_requests(engine.inputs, engine.info.vocab_size, batch, context, steps)
    between = engine.between(kind, requests)
    start(core, requests)
    while len(outputs := core.step()) < batch:
        between(outputs)
    between(outputs)
    started = time.perf_counter()
    for _ in range(steps):
        between(core.step())
    seconds = (time.perf_counter() - started) / steps
    finish(core, requests)
    return seconds


def first_token(engine: Engine, batch: int, context: int) -> float:
    """Seconds to the first token of a short prompt that comes while `batch` requests decode; between two of its steps
    the core's caller finds it."""
    core = engine.core
    *others, late = prepared_requests(engine.inputs, engine.info.vocab_size, batch + 1, context, 40)
    start(core, others)
    while len(core.step()) < batch:
        pass
    core.step()
    asked = time.perf_counter()
    start(core, [late])
    late_id = late.choices[0].request_id
    while all(output.request_id != late_id for output in core.step()):
        pass
    seconds = time.perf_counter() - asked
    finish(core, [*others, late])
    return seconds


def start(core: EngineCore, requests: Sequence[PreparedRequest]) -> None:
    """Queues requests."""
    for request in requests:
        for choice in request.choices:
            refusal = core.add(choice)
            if refusal is not None:
                raise SystemExit(f"refused: {refusal.error}")


def finish(core: EngineCore, requests: Sequence[PreparedRequest]) -> None:
    """Ends requests, and the steps that are still in flight."""
    core.abort([choice.request_id for request in requests for choice in request.choices])
    while core.has_work:
        core.step()


def compare(engines: dict[str, Engine], rounds: int, measure: Callable[[Engine], float]) -> dict[str, object]:
    """Medians of both modes and the ratios sync / async, per round."""
    seconds: dict[str, list[float]] = {mode: [] for mode in engines}
    for number in range(rounds + 1):
        for mode in (list(engines), list(engines)[::-1])[number % 2]:
            value = measure(engines[mode])
            if number:  # the first round warms up
                seconds[mode].append(value)
    ratios = sorted(before / ahead for before, ahead in zip(seconds["sync"], seconds["async"], strict=True))
    return {
        "sync_s": median(seconds["sync"]),
        "async_s": median(seconds["async"]),
        "ratio": median(ratios),
        "ratio_min": ratios[0],
        "ratio_max": ratios[-1],
    }


def as_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """One line per measurement; the ratio says how much faster planning ahead is."""
    lines = [
        "| threads | batch | what | sync, ms | async, ms | sync / async (least to most) |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = f"{row['ratio']:.3f} ({row['ratio_min']:.3f} to {row['ratio_max']:.3f})"
        times = f"{1e3 * row['sync_s']:.2f} | {1e3 * row['async_s']:.2f}"
        lines.append(f"| {row['threads']} | {row['batch']} | {row['what']} | {times} | {spread} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a model by name or path")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16, 32], help="requests side by side")
    parser.add_argument("--context", type=int, default=200, help="tokens of each, about")
    parser.add_argument("--steps", type=int, default=40, help="decode steps per round")
    parser.add_argument("--rounds", type=int, default=7, help="of both modes")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1], help="compute threads")
    parser.add_argument("--between", nargs="+", default=["wire", "text"], choices=["wire", "text"], help="see above")
    parser.add_argument("--no-first-token", action="store_true", help="leave the waits for a first token out")
    parser.add_argument("--json", type=Path, help="write all figures there")
    return parser.parse_args()


def main() -> None:
    """Measures, prints the table, writes files."""
    options = parse()
    rows: list[dict[str, Any]] = []
    for threads in options.threads:
        engines = {
            mode: Engine(options.model, threads, ahead, max(options.batch))
            for mode, ahead in (("sync", False), ("async", True))
        }
        for batch in options.batch:
            measures: dict[str, Callable[[Engine], float]] = {
                f"step, then {kind}": partial(
                    decode, batch=batch, context=options.context, steps=options.steps, kind=kind
                )
                for kind in options.between
            }
            if not options.no_first_token:
                measures["first token"] = partial(first_token, batch=batch, context=options.context)
            for what, measure in measures.items():
                figures = compare(engines, options.rounds, measure)
                rows.append({"threads": threads, "batch": batch, "what": what, **figures})
                print(as_markdown(rows[-1:]).splitlines()[-1], flush=True)
        for engine in engines.values():
            engine.core.close()
    print(as_markdown(rows))
    if options.json is not None:
        figures = {"options": {k: str(v) for k, v in vars(options).items()}, "rows": rows}
        options.json.write_text(
            json.dumps({**figures, "hardware": hardware(), "versions": versions()}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
