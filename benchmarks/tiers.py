"""What the tiers behind the KV cache give: time to the first token of a long prompt, by where its blocks lie.

    python benchmarks/tiers.py [--model smollm2-135m] [--threads 2] [--rounds 5] [--prompt-len 3000] [--path FOLDER]

Per round one new prompt is asked six times: of an engine without tiers; of one with them, cold, while all that is
computed is copied to host memory and disk beside the steps; again, from the device; after other prompts have taken its
blocks, from host memory; after a restart without host memory, from disk; and so once more with the file's pages
dropped from the system's cache, as after a restart of the machine (as far as the disk itself has no cache). All answers
must be the same, with the same logprobs. Beside the times to the first token, which are from arrival in the queue,
stand the seconds that the stores spent on the bytes, and what was foretold for them from the rounds before. Writes
OUT.json and OUT.md.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from octavo.bench.machine import hardware, versions
from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.core import EngineCore
from octavo.execution.kv_store import TierStore
from octavo.hub import resolve
from octavo.kv.speed import LoadSpeed
from octavo.kv.transfer import TransferEvent, TransferState
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest

CASES = ("no tiers", "cold", "device", "host", "disk", "disk, dropped from memory")
LOADED = {"host": "host", "disk": "disk", "disk, dropped from memory": "disk"}
"""Case -> the tier that all full blocks must come from."""
NUM_ANSWER_TOKENS = 16


@dataclass
class Loads:
    """The last load that a store has reported."""

    last: TransferEvent | None = None
    _seen: set[int] = field(default_factory=set)
    """Stores that have not ended."""

    def hear(self, events: list[TransferEvent]) -> None:
        """Takes the loads out of what was polled: stores report RELEASED first, loads never do."""
        for event in events:
            if event.state is TransferState.RELEASED:
                self._seen.add(event.transfer_id)
            elif event.transfer_id in self._seen:
                self._seen.remove(event.transfer_id)
            else:
                self.last = event


@contextmanager
def listening() -> Iterator[Loads]:
    """Hears all that stores report meanwhile."""
    loads, poll = Loads(), TierStore.poll

    def heard(store: TierStore) -> list[TransferEvent]:
        events = poll(store)
        loads.hear(events)
        return events

    TierStore.poll = heard  # type: ignore[method-assign, assignment]
    try:
        yield loads
    finally:
        TierStore.poll = poll  # type: ignore[method-assign]


@dataclass
class Answer:
    """What one request gave."""

    ttft_s: float
    tokens: list[int]
    logprobs: list[float]
    loaded: dict[str, int] = field(default_factory=dict)
    """Tier -> prompt tokens that came from there."""


def pool_blocks(options: argparse.Namespace) -> int:
    """Usable blocks of the pool."""
    return int(options.prompt_len) // 16 + 16


def open_core(options: argparse.Namespace, path: Path | None, *, host: bool) -> EngineCore:
    """An engine whose pool holds one prompt and its answer, and hardly more."""
    blocks = pool_blocks(options)
    fields: dict[str, object] = {
        "model": options.model,
        "threads": options.threads,
        "kv_cache_dtype": options.kv_cache_dtype,
        "speculation": "off",
        "max_model_len": 16 * blocks,
        "num_kv_blocks": 1 + blocks,
    }
    if path is not None:
        fields |= {"kv_disk_path": str(path), "kv_disk_size_bytes": 8 << 30}
    if host:
        fields["kv_host_memory_bytes"] = 1 << 30
    core, _ = build_core(EngineConfig.from_fields(fields), resolve(options.model), time.perf_counter)
    return core


def ask(core: EngineCore, prompt: list[int]) -> Answer:
    """Runs one request alone."""
    params = SamplingParams(temperature=0.0, max_tokens=NUM_ANSWER_TOKENS, ignore_eos=True, logprobs=0)
    request = GenerateRequest(request_id=f"request-{time.perf_counter_ns()}", prompt_token_ids=prompt, params=params)
    refused = core.add(request)
    assert refused is None, refused
    answer = Answer(0.0, [], [])
    while core.has_work:
        core.rest(1.0)
        for output in core.step():
            assert output.error is None, output.error
            answer.tokens += output.new_token_ids
            answer.logprobs += [row.logprobs[0] for row in output.new_logprobs or ()]
            if output.stats is not None:
                answer.ttft_s = (output.stats.first_token_s or 0) - output.stats.arrival_s
                answer.loaded = output.stats.num_loaded_tokens
    return answer


def num_stored(core: EngineCore) -> float:
    """Blocks that have come to tiers so far."""
    return sum(total for name, total in core.load().counters.items() if name.endswith("_stored_blocks"))


def settle(core: EngineCore) -> None:
    """Lets everything that is to be stored arrive, so that a case does not run beside it."""
    stored, before = num_stored(core), -1.0
    while stored != before:
        time.sleep(0.2)
        core.step()
        stored, before = num_stored(core), stored


def drop_from_memory(path: Path) -> None:
    """Has the system forget the pages of all files."""
    for file in path.glob("kv1-*/*"):
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def one_round(options: argparse.Namespace, path: Path, seed: int, loads: Loads) -> dict[str, tuple[Answer, Any]]:
    """Case -> the answer and the load that came before it."""
    chance = random.Random(seed)
    lengths = (options.prompt_len, 16 * pool_blocks(options) - NUM_ANSWER_TOKENS)  # the other takes all blocks
    prompt, other = ([chance.randrange(20, options.vocab_size) for _ in range(length)] for length in lengths)
    found: dict[str, tuple[Answer, Any]] = {}

    def case(name: str, core: EngineCore) -> None:
        loads.last = None
        found[name] = (ask(core, prompt), loads.last)
        settle(core)

    core = open_core(options, None, host=False)
    ask(core, other[:64])
    case("no tiers", core)
    core.close()
    core = open_core(options, path, host=True)
    ask(core, other[:64])  # wakes threads and touches weights
    case("cold", core)
    case("device", core)
    ask(core, other)
    settle(core)
    case("host", core)
    core.close()
    for name in CASES[4:]:
        if name != "disk":
            drop_from_memory(path)
        core = open_core(options, path, host=False)
        ask(core, other[:64])
        case(name, core)
        core.close()
    return found


def run(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """All rounds."""
    speeds = {name: LoadSpeed() for name in LOADED}
    rounds: list[dict[str, dict[str, float | None]]] = []
    with listening() as loads:
        for number in range(options.rounds):
            found = one_round(options, path, options.seed + number, loads)
            cold = found["cold"][0]
            figures: dict[str, dict[str, float | None]] = {}
            for name, (answer, event) in found.items():
                assert (answer.tokens, answer.logprobs) == (cold.tokens, cold.logprobs), f"{name} differs from cold"
                figures[name] = {"ttft_ms": 1e3 * answer.ttft_s}
                if name in LOADED:
                    assert event is not None and event.state is TransferState.DONE, (name, event)
                    full = options.prompt_len // 16 * 16
                    assert answer.loaded == {LOADED[name]: full}, f"{name}: {answer.loaded} of {full} tokens loaded"
                    foretold_s = speeds[name].seconds(event.num_bytes, 0.0)
                    speeds[name].measured(event.num_bytes, event.seconds, 0, event.seconds, 0.0)
                    figures[name] |= {
                        "load_ms": 1e3 * event.seconds,
                        "foretold_ms": None if foretold_s is None else 1e3 * foretold_s,
                        "load_mb": event.num_bytes / 1e6,
                    }
            rounds.append(figures)
            print(f"round {number + 1}: {json.dumps(figures)}", file=sys.stderr)
    return {
        "model": options.model,
        "threads": options.threads,
        "prompt_len": options.prompt_len,
        "kv_cache_dtype": options.kv_cache_dtype,
        "hardware": hardware(),
        "versions": versions(),
        "rounds": rounds,
    }


def _median(rounds: list[dict[str, dict[str, float | None]]], case: str, figure: str) -> float | None:
    values = [value for one in rounds if (value := one[case].get(figure)) is not None]
    return median(values) if values else None


def as_markdown(result: dict[str, Any]) -> str:
    """The table, with everything that the figures depend on."""
    rounds = result["rounds"]
    conditions = (
        f"{result['model']}, {result['hardware']['cpu']}, {result['threads']} threads, KV {result['kv_cache_dtype']} "
        f"in blocks of 16. A prompt of {result['prompt_len']} random tokens; medians of {len(rounds)} rounds. All "
        "answers of a round are the same, logprobs included."
    )
    lines = [
        conditions,
        "",
        "| blocks lie | TTFT, ms | of cold | loaded, MB | load, ms | foretold, ms |",
        "|---|---|---|---|---|---|",
    ]
    cold = _median(rounds, "cold", "ttft_ms") or 0.0
    for case in CASES:
        ttft = _median(rounds, case, "ttft_ms") or 0.0
        rest = [_median(rounds, case, figure) for figure in ("load_mb", "load_ms", "foretold_ms")]
        cells = ["" if value is None else f"{value:.1f}" for value in rest]
        where = {"no tiers": "nowhere, no tiers", "cold": "nowhere"}.get(case, case)
        lines.append(f"| {where} | {ttft:.1f} | {100 * ttft / cold:.1f} % | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a model by name or path")
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-len", type=int, default=3000)
    parser.add_argument("--kv-cache-dtype", default="fp16")
    parser.add_argument("--vocab-size", type=int, default=40_000, help="token ids are drawn from below")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--path", type=Path, default=None, help="where the disk tier lies; default: a temporary folder")
    parser.add_argument("--out", type=Path, default=Path("bench-results/tiers"), help="without ending")
    return parser.parse_args()


def main() -> None:
    """Measures, writes, prints the table."""
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.path) as path:
        result = run(options, Path(path))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    table = as_markdown(result)
    options.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
