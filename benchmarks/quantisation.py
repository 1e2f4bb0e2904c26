"""What each number format of weights costs in quality and gives in speed: the table of docs/quantisation.md.

    python benchmarks/quantisation.py quality --work FOLDER [--model smollm2-135m] [--types q8_0 q4_k ...]
                                      [--llama-python PYTHON] [--threads N] [--text-ids N] [--out OUT]
    python benchmarks/quantisation.py speed --work FOLDER [same] [--prompt 512] [--tokens 64] [--rounds 5]

The model, one that has golden data, is written as F32 to the work folder and quantised from there, by `octavo quantize`
and, where `--llama-python` names an interpreter with llama-cpp-python, by llama.cpp's quantiser (no importance matrix;
K-quants as the S mix). Files that are there already are taken as they are.

quality   bytes of each file, root mean square error of its matrices relative to their root mean square, and mean NLL of
          the two texts of tests/data/golden, all three for both quantisers' files; Octavo computes both.
speed     decode and prefill rate of one sequence: Octavo on its own files, llama.cpp on its own, each beside the bound
          that the memory (decode) or the machine (prefill) sets for Octavo's file. Engines take turns; medians. Needs a
          machine without other work.

Writes OUT.json and OUT.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from engine_process import EngineProcess, EngineSpec
from peer_engines import PROGRAMS, program

from octavo import LLM
from octavo.bench.bounds import bound, step_work
from octavo.bench.datasets import random_prompts
from octavo.bench.machine import hardware, versions
from octavo.conversion import quantise_model
from octavo.conversion.plan import Source
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.quant.recipe import TYPES, Recipe, named_type
from octavo.execution.weights import load_model
from octavo.hub import resolve
from octavo.model.cost import StepShape
from octavo.platform.peaks import measure_peaks
from octavo.request.params import SamplingParams

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "data" / "golden"
MODELS = {"smollm2-135m": "smollm2", "gemma3-270m": "gemma3", "qwen2.5-coder-0.5b": "qwen2"}
"""Names under which models have golden data."""
ENGINE_TIMEOUT_S = 300.0


# ---- files


def source_file(options: argparse.Namespace) -> Path:
    """The model in F32."""
    files = resolve(options.model)
    target = Path(options.work) / f"{options.model}-f32.gguf"
    if not target.exists():
        source = Source(files.name, files.folder, files.files)
        quantise_model(source, Recipe(named_type("to", "f32")), target, threads=options.threads)
    return target


def our_file(options: argparse.Namespace, kind: str) -> Path:
    """Octavo's file of a type."""
    source = source_file(options)
    if kind == "f32":
        return source
    target = source.with_name(f"{options.model}-{kind}-octavo.gguf")
    if not target.exists():
        read = Source(str(source), source.parent, (source,))
        quantise_model(read, Recipe(named_type("to", kind)), target, threads=options.threads)
    return target


def llama_file(options: argparse.Namespace, kind: str) -> Path | None:
    """llama.cpp's; None without an interpreter that has it."""
    if options.llama_python is None:
        return None
    source = source_file(options)
    target = source.with_name(f"{options.model}-{kind}-llama.gguf")
    if not target.exists():
        partial = target.with_suffix(".partial")
        command = [options.llama_python, str(PROGRAMS / "llama_quantize.py"), str(source), str(partial), kind.upper()]
        subprocess.run(command, check=True, capture_output=True)
        partial.rename(target)
    return target


# ---- quality


def relative_error(exact: Checkpoint, file: Path) -> float:
    """Root mean square error of all matrices over their root mean square."""
    other = open_checkpoint([file])
    error = power = 0.0
    for info in exact.tensors.values():
        if len(info.shape) > 1:
            values = exact.float32(info.name)
            error += float(np.sum((other.float32(info.name) - values) ** 2, dtype=np.float64))
            power += float(np.sum(values**2, dtype=np.float64))
    return float(np.sqrt(error / power))


def mean_nll(options: argparse.Namespace, file: Path) -> dict[str, float]:
    """Of each text."""
    with (GOLDEN / "perplexity.jsonl").open(encoding="ascii") as lines:
        rows = [row for row in map(json.loads, lines) if row["model"] == MODELS[options.model]]
    texts = {row["kind"]: row["ids"][: options.text_ids] for row in rows}
    scoring = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1, ignore_eos=True)
    length = max(map(len, texts.values())) + 1
    with LLM(str(file), threads=options.threads, max_model_len=length, max_num_seqs=2) as llm:
        outputs = llm.generate(list(texts.values()), scoring)
    return {
        kind: -float(np.mean([row.logprobs[0] for row in output.prompt_logprobs or () if row is not None]))
        for kind, output in zip(texts, outputs, strict=True)
    }


def quality_of(options: argparse.Namespace, exact: Checkpoint, file: Path) -> dict[str, Any]:
    """The figures of one file."""
    nll = mean_nll(options, file)
    return {"bytes": file.stat().st_size, "error": relative_error(exact, file), "nll": nll}


def run_quality(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each type."""
    exact = open_checkpoint([source_file(options)])
    rows = []
    for kind in options.types:
        row: dict[str, Any] = {"type": kind, "bits": named_type("types", kind).bits_per_weight}
        files = {"octavo": our_file(options, kind), "llama": None if kind == "f32" else llama_file(options, kind)}
        row |= {name: quality_of(options, exact, file) for name, file in files.items() if file is not None}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def quality_table(rows: list[dict[str, Any]]) -> str:
    """One line per type; of both quantisers where both are there."""
    kinds = list(rows[0]["octavo"]["nll"])
    lines = [
        "| type | bits | MB: Octavo's, llama.cpp's | error | " + " | ".join(f"NLL {kind}" for kind in kinds) + " |",
        "|---|---|---|---|" + "---|" * len(kinds),
    ]
    for row in rows:
        made = [row[name] for name in ("octavo", "llama") if name in row]
        cells = [
            ", ".join(f"{one['bytes'] / 1e6:.0f}" for one in made),
            ", ".join(f"{100 * one['error']:.2f} %" for one in made),
            *(", ".join(f"{one['nll'][kind]:.4f}" for one in made) for kind in kinds),
        ]
        lines.append(f"| {row['type']} | {row['bits']:g} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# ---- speed


Rates = tuple[float, float]
"""Prompt tokens and new tokens per second."""


def octavo_runner(options: argparse.Namespace, file: Path) -> tuple[Callable[[], Rates], Callable[[], None]]:
    """What measures Octavo once, and what closes it."""
    length = options.prompt + options.tokens + 1
    llm = LLM(
        str(file),
        threads=options.threads,
        max_model_len=length,
        max_num_seqs=1,
        enable_prefix_caching=False,
        speculation="off",  # a step is a token, as it is for the peers
    )
    prompt = random_prompts(1, options.prompt, llm.info.vocab_size, seed=1)
    params = SamplingParams(temperature=0.0, max_tokens=options.tokens, ignore_eos=True)

    def measure() -> Rates:
        stats = llm.generate(prompt, params)[0].outputs[0].stats
        assert stats is not None and stats.first_token_s and stats.first_scheduled_s and stats.finished_s
        prefill_s, decode_s = stats.first_token_s - stats.first_scheduled_s, stats.finished_s - stats.first_token_s
        return options.prompt / prefill_s, (options.tokens - 1) / decode_s

    return measure, llm.close


def llama_runner(options: argparse.Namespace, file: Path) -> tuple[Callable[[], Rates], Callable[[], None]]:
    """The same for llama.cpp in its own process."""
    setting = {
        "model": str(file), "threads": options.threads, "max_seqs": 1, "max_len": options.prompt + options.tokens + 1,
        "extra_buffers": options.extra_buffers,
    }  # fmt: skip
    spec = EngineSpec("llama.cpp", program(options.llama_python, "llama"), setting)
    engine = EngineProcess(spec, Path(options.work) / "llama.log", ENGINE_TIMEOUT_S)
    vocab_size = load_model(open_checkpoint([file]))[0].vocab_size
    order = {"prompts": random_prompts(1, options.prompt, vocab_size, seed=1), "output_len": options.tokens}

    def measure() -> Rates:
        run = engine.ask(order)
        return options.prompt / run["first_s"], (options.tokens - 1) / (run["elapsed_s"] - run["first_s"])

    return measure, engine.close


def bounds_of(options: argparse.Namespace, file: Path, peaks: Any) -> Rates:
    """The rates that the machine allows for a file: of a whole prompt, and of one token at the mean context."""
    program_, weights = load_model(open_checkpoint([file]))
    context = options.prompt + options.tokens // 2
    prefill = StepShape(scheduled=(options.prompt,), contexts=(options.prompt,), rows=1)
    decode = StepShape(scheduled=(1,), contexts=(context,), rows=1)
    seconds = [bound(step_work(program_, shape, weights), peaks).seconds for shape in (prefill, decode)]
    return options.prompt / seconds[0], 1 / seconds[1]


def run_speed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each type. Both engines of a type are open at a time, and take turns."""
    peaks = measure_peaks(options.threads)
    rows = []
    for kind in options.types:
        ours, theirs = our_file(options, kind), None if kind == "f32" else llama_file(options, kind)
        runners = {"octavo": octavo_runner(options, ours)}
        if theirs is not None:
            runners["llama"] = llama_runner(options, theirs)
        measured: dict[str, list[Rates]] = {name: [] for name in runners}
        for round_ in range(options.rounds + 1):
            for name, (measure, _) in runners.items():
                rates = measure()
                if round_:  # the first warms up
                    measured[name].append(rates)
        for _, close in runners.values():
            close()
        row: dict[str, Any] = {"type": kind, "bound": bounds_of(options, ours, peaks)}
        row |= {name: [median(rate) for rate in zip(*runs, strict=True)] for name, runs in measured.items()}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def speed_table(rows: list[dict[str, Any]]) -> str:
    """One line per type: Octavo, its share of the bound, llama.cpp."""
    lines = [
        "| type | decode tokens/s: Octavo (of bound), llama.cpp | prefill tokens/s: Octavo (of bound), llama.cpp |",
        "|---|---|---|",
    ]
    for row in rows:
        cells = []
        for index in (1, 0):
            mine, most = row["octavo"][index], row["bound"][index]
            theirs = f", {row['llama'][index]:,.0f}" if "llama" in row else ""
            cells.append(f"{mine:,.0f} ({mine / most:.0%} of {most:,.0f}){theirs}")
        lines.append(f"| {row['type']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# ---- command line


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quality", "speed"])
    parser.add_argument("--work", required=True, help="folder for the files that are made; some GB")
    parser.add_argument("--model", choices=list(MODELS), default="smollm2-135m")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=[kind for kind in TYPES if kind != "bf16"])
    parser.add_argument("--llama-python", help="interpreter of an environment with llama-cpp-python")
    parser.add_argument("--extra-buffers", action="store_true", help="let llama.cpp repack weights")
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--text-ids", type=int, default=4096, help="texts are cut to so many tokens")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="quantisation")
    return parser.parse_args()


def main() -> None:
    """Measures, and writes both files."""
    options = parse()
    Path(options.work).mkdir(parents=True, exist_ok=True)
    run, table = {"quality": (run_quality, quality_table), "speed": (run_speed, speed_table)}[options.what]
    rows = run(options)
    settings = {name: value for name, value in vars(options).items() if name not in ("work", "llama_python", "out")}
    result = {"settings": settings, "hardware": hardware(), "versions": versions(), "rows": rows}
    Path(f"{options.out}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{options.out}.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
