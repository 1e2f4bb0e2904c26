"""Octavo with and without speculation next to llama.cpp's server with and without its own, on the same ids.

One request at a time, greedy, the same number of tokens from everybody (no end ends an answer), a fresh prompt each
round. Every engine is a process, stopped while others run. Rates are of decoding: the tokens after the first over the
time after it, by each engine's own clock. llama.cpp's kinds of speculation without a draft model, as its `--help` and
docs/speculative.md name them; `ngram-mod` is what `--spec-default` turns on.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from comparison import or_error, progress
from draft_crowds import CROWDS
from engine_process import EngineFailedError, EngineProcess, EngineSpec
from pairing import estimate, paired_ratios, rotated
from peer_engines import Shape, program
from spec_engine import setting_fields
from speculation_report import OFF, shown

WORKLOADS = ("code edit", "extraction")
KINDS: dict[str, Sequence[str]] = {
    OFF: (),
    "ngram-simple": ("--spec-type", "ngram-simple", "--spec-draft-n-max", "64"),
    "ngram-simple 4, 16": (
        "--spec-type", "ngram-simple", "--spec-draft-n-max", "16",
        "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "16",
    ),
    "ngram-mod": ("--spec-default",),
    "ngram-cache": ("--spec-type", "ngram-cache", "--spec-draft-n-max", "16"),
}  # fmt: skip
"""Name -> arguments of llama-server. `4, 16`: contexts of 4 tokens and drafts of 16, close to what Octavo looks at; as
shipped it looks for 12 and drafts 48."""
OUTPUT_LEN = 128
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Peer:
    """What the comparison needs of llama.cpp."""

    server: str
    """The binary."""
    files: Mapping[str, Path]
    """Name -> the GGUF file that it runs."""


def specs(file: Path, peer: Peer, settings: Sequence[str], threads: int) -> list[EngineSpec]:
    """Octavo with each setting, then llama.cpp with each file and kind."""
    shape = Shape(threads, 1, 2048)
    engines = [
        EngineSpec(
            f"octavo {setting}", program(sys.executable, "octavo"), shape.setting(file, options=setting_fields(setting))
        )
        for setting in (OFF, *settings)
    ]
    for name, path in peer.files.items():
        for kind, arguments in KINDS.items():
            setting = shape.setting(path, server=peer.server, arguments=list(arguments))
            engines.append(EngineSpec(f"llama.cpp {kind}, {name}", program(sys.executable, "llama_server"), setting))
    return engines


def compare(
    engines: Sequence[EngineSpec],
    prompts: Mapping[str, Sequence[Sequence[int]]],
    rounds: int,
    result: dict[str, Any],
) -> None:
    """
    Args:
        prompts: kind of work -> its prompts; round r asks the r-th, in the circle.
        result: gets `engines` and `rounds`, as far as they come.
    """
    facts = result["engines"] = {}
    result["rounds"] = []
    running: dict[str, EngineProcess] = {}
    with tempfile.TemporaryDirectory() as logs:
        try:
            for number, spec in enumerate(engines):
                log = Path(logs) / f"{number}.log"
                facts[spec.name] = or_error(partial(_open, spec, log, running))
            for number in range(rounds):
                cells: dict[str, Any] = {workload: {} for workload in prompts}
                result["rounds"].append(cells)
                _round(running, prompts, number, facts, cells)
        finally:
            for engine in running.values():
                engine.close()


def _open(spec: EngineSpec, log: Path, running: dict[str, EngineProcess]) -> dict[str, Any]:
    engine = running[spec.name] = EngineProcess(spec, log, TIMEOUT_S)
    engine.ask({"prompts": [list(range(100, 164))], "output_len": 4})
    engine.pause()
    progress(f"{spec.name} is warm")
    return engine.facts


def _round(
    running: dict[str, EngineProcess],
    prompts: Mapping[str, Sequence[Sequence[int]]],
    number: int,
    facts: dict[str, Any],
    cells: dict[str, Any],
) -> None:
    """Into `cells`: kind of work -> engine -> what came of it. An engine that fails is out."""
    for workload, listed in prompts.items():
        order = {"prompts": [list(listed[number % len(listed)])], "output_len": OUTPUT_LEN}
        for name in rotated(list(running), number):
            engine = running[name]
            engine.resume()
            try:
                made = engine.ask(order)
            except EngineFailedError as error:
                facts[name] = facts[name] | {"error": f"{workload}: {error}"}
                running.pop(name).close()
                continue
            engine.pause()
            cells[workload][name] = _record(made)
            progress(f"peers, round {number + 1}, {workload}, {name}: {cells[workload][name]['decode']:.1f} tokens/s")


def _record(made: Mapping[str, Any]) -> dict[str, Any]:
    (tokens,) = made["tokens"]
    decode = (len(tokens) - 1) / (made["elapsed_s"] - made["first_s"])
    return {"decode": decode, "tokens": tokens, "drafts": made["drafts"], "right_drafts": made["right_drafts"]}


def table(result: Mapping[str, Any]) -> str:
    """Per kind of work and engine: its rate, what its speculation gives it, Octavo's rate over its own, how often its
    answers are those that it gives without speculation."""
    lines = [
        "| work | engine | tokens/s | over its own off | Octavo's best over it | drafts right | answers as without |",
        "|---" * 7 + "|",
    ]
    for workload in dict.fromkeys(workload for one in result["rounds"] for workload in one):
        rounds = [one[workload] for one in result["rounds"]]
        ours = [name for name in result["engines"] if name.startswith("octavo") and any(name in one for one in rounds)]
        best = max(ours, key=partial(_median, rounds)) if ours else None
        for name in result["engines"]:
            if any(name in one for one in rounds):
                lines.append(_row(workload, name, rounds, best))
    errors = [f"{name}: {facts['error']}" for name, facts in result["engines"].items() if "error" in facts]
    return "\n".join([*lines, *(["", "Failed: " + "; ".join(errors)] if errors else [])])


def _rates(rounds: Sequence[Mapping[str, Any]], name: str) -> list[float | None]:
    return [one[name]["decode"] if name in one else None for one in rounds]


def _median(rounds: Sequence[Mapping[str, Any]], name: str) -> float:
    return estimate([rate for rate in _rates(rounds, name) if rate is not None]).median


def _row(workload: str, name: str, rounds: Sequence[Mapping[str, Any]], best: str | None) -> str:
    rates = _rates(rounds, name)
    off = _off_of(name)
    own = paired_ratios(rates, _rates(rounds, off))
    ours = [] if best is None else paired_ratios(_rates(rounds, best), rates)
    records = [one[name] for one in rounds if name in one]
    drafts, right = sum(one["drafts"] for one in records), sum(one["right_drafts"] for one in records)
    pairs = [(one[name]["tokens"], one[off]["tokens"]) for one in rounds if name in one and off in one]
    cells = [
        workload,
        name,
        f"{_median(rounds, name):.1f}",
        shown(estimate(own)) if own and name != off else "-",
        shown(estimate(ours)) if ours and name != best else "-",
        f"{right} of {drafts}" if drafts else "-",
        f"{sum(a == b for a, b in pairs)} of {len(pairs)}" if name != off else "-",
    ]
    return f"| {' | '.join(cells)} |"


def _off_of(name: str) -> str:
    """The same engine and file without speculation."""
    if name.startswith("octavo"):
        return f"octavo {OFF}"
    return f"llama.cpp {OFF}, {name.rpartition(', ')[2]}"


def prompts_of(render: Any) -> dict[str, list[list[int]]]:
    """The questions as the model's chat template puts them; `render` makes ids of messages."""
    return {
        workload: [render([{"role": "user", "content": question.text}]) for question in CROWDS[workload]]
        for workload in WORKLOADS
    }
