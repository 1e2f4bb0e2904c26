"""How long a start takes: `octavo serve` until /ready answers 200, `octavo complete` until the first byte of an answer.

Usage: python benchmarks/startup.py [MODEL ...] [--runs 5] [--json FILE]     default: smollm2-135m

`warm`: the model's file is in the page cache. `cold`: its pages were dropped before (the download is not part of it).
Medians over the runs. `listening_s` is when the port accepts connections, which is when the server's own imports begin;
the phases of the core process run beside those and come from its log.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from octavo.bench.startup import start_server
from octavo.hub import resolve

OCTAVO = [sys.executable, "-c", "from octavo.cli.main import main; main()"]


def drop_pages(model: str) -> None:
    for file in resolve(model).files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def first_byte(model: str) -> dict[str, float]:
    """Seconds to the first byte of a continuation, and to the end of the process."""
    began = time.perf_counter()
    command = [*OCTAVO, "complete", "The capital of France is", "-m", model, "--max-tokens", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if process.stdout is None or not process.stdout.read(1):
            raise SystemExit("no answer")
        first = time.perf_counter() - began
        process.stdout.read()
    return {"first_byte_of_complete_s": first, "exit_of_complete_s": time.perf_counter() - began}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}


def measure(model: str, runs: int) -> dict[str, dict[str, float]]:
    resolve(model)
    start_server(model)  # fills the page cache
    warm = medians([{**start_server(model), **first_byte(model)} for _ in range(runs)])
    cold = []
    for _ in range(runs):
        drop_pages(model)
        cold.append(start_server(model))
    return {"warm": warm, "cold": medians(cold)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["smollm2-135m"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {model: measure(model, arguments.runs) for model in arguments.models}
    for model, figures in results.items():
        for kind, seconds in figures.items():
            print(f"{model}, {kind}: " + ", ".join(f"{name} {value:.3f}" for name, value in seconds.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
