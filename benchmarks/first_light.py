"""Octavo next to llama.cpp on the same token ids: throughput, prefill and decoding speed, in interleaved rounds.

    python benchmarks/first_light.py --llama-python PATH/bin/python [--model smollm2-135m] [--threads 2] [--rounds 5]

Both get the same model file, threads and prompts (random ids from one seed), generate exactly as many greedy tokens,
and run with at most `--concurrency` requests at one time. In a round each setting is measured with one, then with the
other; figures are medians over rounds. Writes OUT.json and OUT.md. Without --llama-python it measures Octavo alone.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from octavo.bench.datasets import random_prompts
from octavo.bench.machine import hardware, versions
from octavo.execution.loader import open_checkpoint
from octavo.hub import resolve

PEER = Path(__file__).with_name("llama_peer.py")
WAVES = 2


@dataclass(frozen=True)
class Setting:
    """One line of the table."""

    concurrency: int
    input_len: int
    output_len: int

    @property
    def num_prompts(self) -> int:
        return WAVES * self.concurrency


def measure_octavo(model: str, setting: Setting, threads: int, seed: int) -> dict[str, float]:
    """`octavo bench throughput` and `octavo bench latency`, each in a process of its own."""
    shared = ["-m", model, "--threads", threads, "--seed", seed]
    shared += ["--input-len", setting.input_len, "--output-len", setting.output_len]
    whole = _octavo_bench(
        ["throughput", *shared, "--num-prompts", setting.num_prompts, "--max-concurrency", setting.concurrency]
    )
    parts = _octavo_bench(["latency", *shared, "--batch-size", setting.concurrency, "--repeats", WAVES])
    return {
        "output_tokens_per_s": whole["output_tokens_per_s"],
        "prefill_tokens_per_s": parts["prefill_tokens_per_s"]["median"],
        "decode_tokens_per_s": parts["decode_tokens_per_s"]["median"],
        "peak_memory_bytes": whole["peak_memory_bytes"],
    }


def _octavo_bench(arguments: list[Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        start = "from octavo.cli.main import main; main()"
        command = [sys.executable, "-c", start, "bench", *map(str, arguments), "--json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


@dataclass(frozen=True)
class LlamaPeer:
    """llama.cpp in an environment of its own."""

    python: Path
    file: Path
    extra_buffers: bool

    def measure(
        self, prompts: list[list[int]], setting: Setting, threads: int
    ) -> tuple[dict[str, float], dict[str, str]]:
        """The same prompts through llama.cpp; figures and versions."""
        order = {
            "model": str(self.file),
            "prompts": prompts,
            "output_len": setting.output_len,
            "concurrency": setting.concurrency,
            "threads": threads,
            "extra_buffers": self.extra_buffers,
        }
        done = subprocess.run([self.python, PEER], input=json.dumps(order), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            hint = "it crashed; try --llama-no-extra-buffers" if done.returncode < 0 else done.stderr[-2000:]
            raise SystemExit(f"llama.cpp failed with {done.returncode}: {hint}")
        figures = json.loads(done.stdout.splitlines()[-1])
        return {
            "output_tokens_per_s": setting.num_prompts * setting.output_len / figures["elapsed_s"],
            "prefill_tokens_per_s": setting.concurrency * setting.input_len / figures["prefill_s"],
            "decode_tokens_per_s": setting.concurrency / figures["decode_step_s"],
        }, figures["versions"]


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Figure by figure over the rounds."""
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


def as_markdown(result: dict[str, Any]) -> str:
    """The table, with everything that the figures depend on."""
    machine, lines = result["hardware"], []
    lines.append(
        f"{result['model']}, {machine['cpu']}, {result['threads']} threads, {result['input_len']} tokens in and "
        f"{result['output_len']} out, greedy, no prefix hits; medians of {result['rounds']} interleaved rounds. "
        f"Versions: {', '.join(f'{name} {version}' for name, version in result['versions'].items())}."
    )
    lines += [
        "",
        "| at one time | engine | output tokens/s | prefill tokens/s | decode tokens/s |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        for engine in ("octavo", "llama.cpp"):
            if engine in row:
                figures = row[engine]
                names = ("output_tokens_per_s", "prefill_tokens_per_s", "decode_tokens_per_s")
                cells = " | ".join(f"{figures[name]:.1f}" for name in names)
                lines.append(f"| {row['concurrency']} | {engine} | {cells} |")
    return "\n".join(lines) + "\n"


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds of all settings."""
    (file, *_) = resolve(options.model).files
    vocab_size = len(open_checkpoint([file]).metadata["tokenizer.ggml.tokens"])
    settings = [Setting(concurrency, options.input_len, options.output_len) for concurrency in options.concurrency]
    peer = None
    if options.llama_python is not None:
        peer = LlamaPeer(options.llama_python, file, not options.llama_no_extra_buffers)
    measured: dict[tuple[Setting, str], list[dict[str, float]]] = {}
    peers: dict[str, str] = {}
    for number in range(options.rounds):
        for setting in settings:
            print(f"round {number + 1} of {options.rounds}: {setting.concurrency} at one time", file=sys.stderr)
            seed = options.seed + number
            figures = measure_octavo(options.model, setting, options.threads, seed)
            measured.setdefault((setting, "octavo"), []).append(figures)
            if peer is not None:
                prompts = random_prompts(setting.num_prompts, setting.input_len, vocab_size, seed)
                figures, peers = peer.measure(prompts, setting, options.threads)
                measured.setdefault((setting, "llama.cpp"), []).append(figures)
    rows = [
        {"concurrency": setting.concurrency}
        | {engine: medians(rounds) for (of, engine), rounds in measured.items() if of == setting}
        for setting in settings
    ]
    return {
        "model": options.model,
        "input_len": options.input_len,
        "output_len": options.output_len,
        "threads": options.threads,
        "rounds": options.rounds,
        "waves": WAVES,
        "hardware": hardware(),
        "versions": versions() | {name: version for name, version in peers.items() if name != "system"},
        "llama_cpp_system": peers.get("system"),
        "rows": rows,
        "raw": [
            {"concurrency": setting.concurrency, "engine": engine, "rounds": rounds}
            for (setting, engine), rounds in measured.items()
        ],
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-python", type=Path, help="python of an environment with llama-cpp-python")
    parser.add_argument("--llama-no-extra-buffers", action="store_true", help="no repacked weights, no AMX")
    parser.add_argument("--model", default="smollm2-135m", help="a GGUF model by name or path")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench-results/first_light"), help="without ending")
    return parser.parse_args()


def main() -> None:
    """Measures, writes, prints the table."""
    options = parse()
    result = run(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    table = as_markdown(result)
    options.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
