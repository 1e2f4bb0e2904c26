"""The cost table: where each microsecond of a decode step goes, over the whole engine.

    python benchmarks/step_cost.py [--model smollm2-135m] [--batch 1 32] [--context 200] [--steps 150] [--threads N]
                                   [--seconds 2] [--json OUT.json] [--md OUT.md]

A real engine core runs in this process: `--batch` requests decode greedily around `--context` tokens. Its own timings
(schedule, prepare, execute, sample, update) are read after every step; what is left of the step's wall time is `core
loop`. Then, apart from it, on the same model:

    kernels, by kind     `NativeExecutor.profile` of an equal step; `executor` is what a whole call takes beyond them
    to text              the output processor: detokeniser, stop strings, deltas
    wire, core side      encoding a step's outputs, sending, looking for messages: a served core pays it each step
    wire, client side    receiving and decoding them, in the other process, while the next step runs
    around the core      what `LLM` does from step to step beyond the core's step, text left out

All figures are 10th percentiles: what a part takes when nobody interferes. The critical path of the offline engine is
core + around the core + to text; of a served one, core + wire, core side. Python's share is everything but kernels and
executor on the served path.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from octavo.bench.bounds import bound, step_work
from octavo.bench.machine import hardware, versions
from octavo.bench.steps import StepCase, build_executor, make_batch, time_step
from octavo.config import EngineConfig
from octavo.engine import wire
from octavo.engine.build import build_core
from octavo.engine.core import EngineCore
from octavo.engine.input import InputProcessor, PreparedRequest, RequestOptions
from octavo.engine.local import LocalEngine
from octavo.engine.output_processor import RequestStream
from octavo.engine.words import load_words
from octavo.execution.loader import open_checkpoint
from octavo.execution.weights import load_model
from octavo.hub import resolve
from octavo.platform.peaks import Peaks, measure_peaks
from octavo.request.outputs import RequestOutput
from octavo.request.params import SamplingParams

PERCENTILE = 10
PYTHON_PARTS = ("schedule", "prepare", "sample", "update", "core loop")
CORE_PARTS = ("schedule", "prepare", "execute", "sample", "update")


@dataclass(frozen=True)
class Loop:
    """Seconds of each decode step, by part: `CORE_PARTS`, `core loop` (the rest of the step) and `to text`."""

    parts: list[dict[str, float]]
    outputs: list[list[RequestOutput]]

    def quiet(self) -> dict[str, float]:
        return {name: quiet([step[name] for step in self.parts]) for name in self.parts[0]}


def quiet(values: Sequence[float]) -> float:
    """The 10th percentile."""
    return float(np.percentile(values, PERCENTILE))


def kind_of(stage: str) -> str:
    """The row of the table that a stage of the executor belongs to."""
    if stage == "attention":
        return "attention"
    if stage.startswith("linear"):
        return "logits" if any(name in stage for name in ("embed", "head", "output")) else "linears"
    return "row ops"


def by_kind(stages: dict[str, float]) -> dict[str, float]:
    """Seconds of stages, added up by kind."""
    kinds = dict.fromkeys(("linears", "logits", "attention", "row ops"), 0.0)
    for name, seconds in stages.items():
        kinds[kind_of(name)] += seconds
    return kinds


def prepared_requests(
    inputs: InputProcessor, vocab_size: int, batch: int, context: int, steps: int
) -> list[PreparedRequest]:
    """Requests that are around `context` tokens long while the measured steps run."""
    params = SamplingParams(temperature=0, max_tokens=steps + 8, ignore_eos=True, detokenize=True)
    rng = np.random.default_rng(0)
    length = max(1, context - steps // 2)
    return [
        inputs.prepare(f"r{i}", rng.integers(0, vocab_size, length).tolist(), params, RequestOptions())
        for i in range(batch)
    ]


def run_loop(core: EngineCore, streams: Sequence[RequestStream], steps: int) -> Loop:
    """Decodes, one step at a time, with all requests in every step."""
    stream_by_id = {choice.request_id: stream for stream in streams for choice in stream.request.choices}
    for stream in streams:
        for choice in stream.request.choices:
            refusal = core.add(choice)
            if refusal is not None:
                raise SystemExit(f"refused: {refusal.error}")
    loop = Loop([], [])
    before = core.load().counters
    while len(loop.parts) < steps:
        started = time.perf_counter()
        outputs = core.step()
        stepped = time.perf_counter()
        for output in outputs:
            stream_by_id[output.request_id].push(output)
        shown = time.perf_counter()
        after = core.load().counters
        spent = {part: after[f"{part}_s"] - before[f"{part}_s"] for part in CORE_PARTS}
        if len(outputs) == len(stream_by_id) and after["computed_tokens"] - before["computed_tokens"] == len(outputs):
            rest = stepped - started - sum(spent.values())
            loop.parts.append({**spent, "core loop": rest, "to text": shown - stepped, "step": stepped - started})
            loop.outputs.append(outputs)
        before = after
    core.abort(stream_by_id)
    while core.has_work:
        core.step()
    return loop


def time_around(core: EngineCore, requests: Sequence[PreparedRequest], steps: int) -> float:
    """Seconds from step to step of an `LLM` beyond the parts that the core counts; its requests get ids, not text."""
    engine = LocalEngine(core)
    deltas = engine.run([RequestStream(request, None) for request in requests], engine.clock())
    around: list[float] = []
    resumed, before = time.perf_counter(), counted_seconds(core)
    for count, _ in enumerate(deltas, start=1):
        if count % len(requests) == 0:
            stopped, after = time.perf_counter(), counted_seconds(core)
            around.append(stopped - resumed - (after - before))
            resumed, before = time.perf_counter(), after
        if len(around) > steps:
            break
    deltas.close()
    return quiet(around)


def counted_seconds(core: EngineCore) -> float:
    """What all parts of all steps have taken so far."""
    counters = core.load().counters
    return sum(counters[f"{part}_s"] for part in CORE_PARTS)


def time_wire(outputs: Sequence[list[RequestOutput]]) -> dict[str, float]:
    """Seconds per step on both ends of the sockets between core and client."""
    core_s: list[float] = []
    client_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        incoming_address, address, _ = wire.addresses(Path(folder))
        with (
            context.socket(zmq.PUSH) as outgoing,
            context.socket(zmq.PULL) as received,
            context.socket(zmq.PULL) as incoming,
        ):
            received.bind(address)
            incoming.bind(incoming_address)
            outgoing.connect(address)
            for step in outputs:
                started = time.perf_counter()
                outgoing.send_multipart([wire.Kind.OUTPUTS.frame, wire.encoder.encode(step)])
                incoming.poll(0)
                sent = time.perf_counter()
                received.poll()
                arrived = time.perf_counter()
                _, payload = received.recv_multipart()
                wire.decode_outputs(payload)
                core_s.append(sent - started)
                client_s.append(time.perf_counter() - arrived)
    return {"wire, core side": quiet(core_s), "wire, client side": quiet(client_s)}


class Engine:
    """A model under measurement: its core, and an executor of its own for the kernels."""

    def __init__(self, model: str, threads: int | None, max_batch: int) -> None:
        settings: dict[str, object] = {"model": model, "threads": threads, "max_num_seqs": max(64, max_batch)}
        settings["speculation"] = "off"  # a step is a token of each request
        self.config = EngineConfig.from_fields(settings)
        self.files = resolve(model)
        self.core, info = build_core(self.config, self.files, time.perf_counter)
        self.words = load_words(self.config, self.files)
        self.info = self.words.complete(info)
        self.inputs = InputProcessor(self.info, self.words.tokenizer, default_seed=0)

    def loop(self, batch: int, context: int, steps: int) -> Loop:
        requests = prepared_requests(self.inputs, self.info.vocab_size, batch, context, steps)
        return run_loop(self.core, [RequestStream(request, self.words.tokenizer) for request in requests], steps)

    def around(self, batch: int, context: int, steps: int) -> float:
        return time_around(
            self.core, prepared_requests(self.inputs, self.info.vocab_size, batch, context, steps), steps
        )


def cost_table(engine: Engine, peaks: Peaks, batch: int, context: int, steps: int, seconds: float) -> dict[str, Any]:
    """All rows of one batch size, in seconds per step."""
    loop = engine.loop(batch, context, steps)
    parts = loop.quiet()
    parts |= time_wire(loop.outputs)
    parts["around the core"] = engine.around(batch, context, steps) - parts["core loop"]
    program, weights = load_model(open_checkpoint(engine.files.files))
    case = StepCase(batch, 1, context)
    executor = build_executor(program, weights, [case], threads=engine.info.threads, isa=engine.info.isa)
    times = time_step(executor, [make_batch(executor.layout, case, program.vocab_size)], seconds, least=20)
    kinds = by_kind(times.stages)
    executor.close()
    least = bound(step_work(program, case.shape, weights), peaks)
    return {
        "batch": batch,
        "context": context,
        "kernels_s": kinds,
        "executor_s": times.best_s - times.stages_s,
        "parts_s": parts,
        "served_step_s": parts["step"] + parts["wire, core side"],
        "python_share": python_share(parts),
        "bound_s": least.seconds,
        "bound_by": least.limit.value,
    }


def python_share(parts: dict[str, float]) -> float:
    """Share of a served step that is neither kernels nor executor."""
    served = parts["step"] + parts["wire, core side"]
    return (served - parts["execute"]) / served


def as_markdown(tables: Sequence[dict[str, Any]]) -> str:
    """One column per batch size, microseconds and shares of the served step."""
    rows: list[tuple[str, Callable[[dict[str, Any]], float]]] = [
        *((f"kernels: {kind}", lambda t, kind=kind: t["kernels_s"][kind]) for kind in tables[0]["kernels_s"]),
        ("executor (call beyond its stages)", lambda t: t["executor_s"]),
        ("**execute** (in the engine)", lambda t: t["parts_s"]["execute"]),
        *((part, lambda t, part=part: t["parts_s"][part]) for part in PYTHON_PARTS),
        ("**core step**", lambda t: t["parts_s"]["step"]),
        ("wire, core side", lambda t: t["parts_s"]["wire, core side"]),
        ("**served step**", lambda t: t["served_step_s"]),
        ("wire, client side (in the other process)", lambda t: t["parts_s"]["wire, client side"]),
        ("to text (client; in an `LLM` on the path)", lambda t: t["parts_s"]["to text"]),
        ("around the core step in an `LLM`", lambda t: t["parts_s"]["around the core"]),
        ("bound", lambda t: t["bound_s"]),
    ]
    lines = ["| us per step (share) | " + " | ".join(f"batch {t['batch']}" for t in tables) + " |"]
    lines.append("|---" * (1 + len(tables)) + "|")
    for name, value in rows:
        cells = (f"{1e6 * value(t):.0f} ({100 * value(t) / t['served_step_s']:.1f} %)" for t in tables)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    shares = (f"{100 * t['python_share']:.1f} %" for t in tables)
    lines.append("| Python's share of a served step | " + " | ".join(shares) + " |")
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a model by name or path")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32], help="requests side by side")
    parser.add_argument("--context", type=int, default=200, help="tokens of each, about")
    parser.add_argument("--steps", type=int, default=150, help="decode steps measured")
    parser.add_argument("--seconds", type=float, default=2.0, help="for the kernels of each batch size")
    parser.add_argument("--threads", type=int, default=None, help="compute threads; default: as the engine chooses")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--md", type=Path, help="write the table there")
    return parser.parse_args()


def main() -> None:
    """Measures, prints the table, writes files."""
    options = parse()
    engine = Engine(options.model, options.threads, max(options.batch))
    peaks = measure_peaks(engine.info.threads, engine.info.isa)
    tables = [
        cost_table(engine, peaks, batch, options.context, options.steps, options.seconds) for batch in options.batch
    ]
    figures = {"model": options.model, "threads": engine.info.threads, "isa": engine.info.isa, "tables": tables,
               "hardware": hardware(), "versions": versions()}  # fmt: skip
    print(as_markdown(tables))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if options.md is not None:
        options.md.write_text(as_markdown(tables))


if __name__ == "__main__":
    main()
