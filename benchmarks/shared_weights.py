"""What a token costs where the packed weights lie: memory of the engine's own, or a file that several engines map.

    python benchmarks/shared_weights.py [MODEL ...] [--folders /var/tmp /dev/shm] [--seconds 2] [--runs 3] [--md FILE]

One sequence, context 192, one thread; thread CPU time per step, the 20th percentile of a run and the best of the runs,
which alternate between the places. Each run is a process of its own. `small pages`: the same with huge pages refused
to the process (prctl), as on a system that has none to give. `start` is building the executor, where the file is there
already; `in huge pages`, how much of the weights the processor sees in pages of 2 MiB.
"""

import argparse
import ctypes
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from octavo.bench.steps import StepCase, layout_of, make_batch, time_step
from octavo.execution.loader import open_checkpoint
from octavo.execution.native import NativeExecutor
from octavo.execution.native.shared_weights import SharedWeights
from octavo.execution.weights import load_model
from octavo.hub import resolve

MODELS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"]
PR_SET_THP_DISABLE = 41


def refuse_huge_pages() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise SystemExit("this system cannot refuse huge pages to a process")


def in_huge_pages() -> int:
    """Bytes of this process, own and mapped, in huge pages."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * sum(int(kib) for kib in re.findall(r"(?:AnonHugePages|FilePmdMapped|ShmemPmdMapped):\s+(\d+)", text))


def run(arguments: argparse.Namespace) -> None:
    """One run, in a process of its own."""
    if arguments.small_pages:
        refuse_huge_pages()
    files = resolve(arguments.models[0])
    program, weights = load_model(open_checkpoint(files.files))
    layout = layout_of(program.cache_layers, 1 + 16 * len(program.cache_layers))
    shared = SharedWeights(Path(arguments.place), files.name, files.name) if arguments.place else None
    began, cpu = time.perf_counter(), time.process_time()
    executor = NativeExecutor(
        program,
        weights,
        layout,
        threads=1,
        isa="auto",
        max_tokens=1,
        max_rows=1,
        max_seqs=1,
        max_positions=192,
        shared=shared,
    )
    start = {"start_s": time.perf_counter() - began, "start_cpu_s": time.process_time() - cpu}
    batches = [make_batch(layout, StepCase(1, 1, 192), program.vocab_size, seed) for seed in range(3)]
    times = time_step(executor, batches, arguments.seconds, by_stage=False)
    share = in_huge_pages() / executor.num_bytes["weights"]
    print(json.dumps({"token_cpu_s": times.caller_cpu_s, "huge": min(1.0, share), **start}))


def child(model: str, place: str, *, small: bool, seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, model, "--run", "--place", place, "--seconds", str(seconds)]
    command += ["--small-pages"] if small else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def measure(model: str, places: dict[str, str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each place and kind of pages."""
    rows: dict[tuple[str, bool], list[dict[str, float]]] = {}
    for place in places.values():
        child(model, place, small=False, seconds=0.1)  # writes the file
    for _ in range(arguments.runs):
        for small in (False, True):
            for name, place in places.items():
                rows.setdefault((name, small), []).append(child(model, place, small=small, seconds=arguments.seconds))
    return [
        {"model": model, "weights": name + (", small pages" if small else ""), "huge": runs[0]["huge"]}
        | {key: min(one[key] for one in runs) for key in ("token_cpu_s", "start_s", "start_cpu_s")}
        for (name, small), runs in rows.items()
    ]


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| model | weights | ms CPU per token | in huge pages | start, s | start, s of CPU |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = f"{1e3 * row['token_cpu_s']:.2f} | {100 * row['huge']:.0f} % | {row['start_s']:.2f}"
        lines.append(f"| {row['model']} | {row['weights']} | {figures} | {row['start_cpu_s']:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--folders", nargs="+", default=[tempfile.gettempdir()])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--md", type=Path)
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--place", default="", help=argparse.SUPPRESS)
    parser.add_argument("--small-pages", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments)
        return
    rows: list[dict[str, Any]] = []
    for model in arguments.models:
        folders = {folder: tempfile.TemporaryDirectory(dir=folder) for folder in arguments.folders}
        places = {"private": ""} | {f"shared, {folder}": made.name for folder, made in folders.items()}
        rows += measure(model, places, arguments)
        for made in folders.values():
            made.cleanup()
    print("\n".join(table(rows)))
    if arguments.md:
        arguments.md.write_text("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
