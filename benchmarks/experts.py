"""Layers of experts against their bound: weights of the experts that are met, and the speed at which memory is read.

    python benchmarks/experts.py [--experts 8] [--active 2] [--hidden 576] [--inner 1536] [--format Q4_1]
                                 [--layers 24] [--rows 1 4 16 128 512] [--threads N] [--seconds 2] [--md OUT.md]

A program of nothing but routers and experts with random weights, a layer's own each, so that they stream from memory as
in a model. Tokens differ, so routes do, too, and are about even. The bound of a row count is the larger of (bytes of
the experts that so many tokens are expected to meet / the memory's speed) and (operations / the speed of the cores),
both measured at the start with the same threads. Times are 10th percentiles over many steps, by the clock, of the six
stages of a layer together; `matrices` is what the two stages that read weights take of it.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo.bench.bounds import Work, bound, work_of
from octavo.bench.machine import hardware, versions
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import StepBatch
from octavo.execution.quant import TensorType, quantize
from octavo.execution.weights import LoadedWeight
from octavo.kv.spec import AttentionSpec, KVDtype, lay_out
from octavo.model.cost import StepShape
from octavo.model.program import (
    Activation,
    Buffer,
    CacheLayer,
    Embed,
    Experts,
    Linear,
    Op,
    Program,
    Route,
    Routing,
    Weight,
)
from octavo.platform.peaks import Peaks, measure_peaks

TOKENS = 4096
"""Different rows to route."""
MATRICES = ("experts gate+up", "experts down")
COLUMNS = ("rows", "us a layer", "matrices", "weights, GB/s", "bound, us", "of the bound", "by")


@dataclass(frozen=True)
class Mixture:
    """The layers that are measured."""

    experts: int
    active: int
    hidden: int
    inner: int
    tensor_type: TensorType
    layers: int

    def program(self) -> tuple[Program, dict[str, LoadedWeight]]:
        """Router and experts, `layers` times over the same rows."""
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((TOKENS, self.hidden), dtype=np.float32)
        weights = {"rows": _stored(TensorType.F32, rows)}
        ops: list[Op] = [Embed(out="x", weight="rows")]
        shapes = {"gate": (self.inner, self.hidden), "up": (self.inner, self.hidden), "down": (self.hidden, self.inner)}
        parts = {part: _noise(rng, self.tensor_type, *shape) for part, shape in shapes.items()}
        for layer in range(self.layers):
            weights[f"{layer}.router"] = _noise(rng, TensorType.F32, self.experts, self.hidden)
            names = {part: tuple(f"{layer}.{e}.{part}" for e in range(self.experts)) for part in parts}
            weights |= {name: parts[part] for part, listed in names.items() for name in listed}
            ops += [
                Linear(x="x", out="router", weight=f"{layer}.router"),
                Route(logits="router", out="routes", top_k=self.active, routing=Routing.SHARE_OF_CHOSEN),
                Experts(x="x", routes="routes", out="y", activation=Activation.SILU, **names),
            ]
        widths = {"x": self.hidden, "y": self.hidden, "router": self.experts, "routes": 2 * self.active}
        program = Program(
            name="experts",
            ops=tuple(ops),
            buffers={name: Buffer(name, "tokens", width) for name, width in widths.items()},
            weights={name: Weight(name, weight.shape) for name, weight in weights.items()},
            cache_layers=(CacheLayer(kv_heads=1, head_dim=8),),
            ropes=(),
            outputs={"logits": "y"},
            vocab_size=TOKENS,
            max_positions=TOKENS,
        )
        return program, weights


def main() -> None:
    """Measures and prints a table."""
    arguments = _arguments()
    mixture = Mixture(
        arguments.experts,
        arguments.active,
        arguments.hidden,
        arguments.inner,
        TensorType[arguments.format],
        arguments.layers,
    )
    peaks = measure_peaks(arguments.threads, seconds=2.0)
    program, weights = mixture.program()
    executor = _executor(program, weights, arguments.threads, max(arguments.rows))
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for rows in arguments.rows:
        taken = _time(executor, rows, arguments.seconds)
        lines.append(_line(_cells(mixture, program, weights, peaks, rows, taken)))
        print(lines[-1], flush=True)
    if arguments.md is not None:
        head = f"{mixture}; {peaks.threads} threads, {peaks.isa}, reads {1e-9 * peaks.read_bytes_per_s:.1f} GB/s"
        arguments.md.write_text("\n".join([f"{hardware()}, {versions()}", "", head, "", *lines, ""]), encoding="utf-8")


def _cells(
    mixture: Mixture,
    program: Program,
    weights: dict[str, LoadedWeight],
    peaks: Peaks,
    rows: int,
    taken: dict[str, float],
) -> list[str]:
    op = next(op for op in program.ops if isinstance(op, Experts))
    step = StepShape(scheduled=(1,) * rows, contexts=(1,) * rows, rows=0)
    work: Work = work_of(op, program, step, weights)
    least = bound(work, peaks)
    whole = sum(seconds for name, seconds in taken.items() if name.startswith("experts ")) / mixture.layers
    matrices = sum(taken[name] for name in MATRICES) / mixture.layers
    return [
        str(rows),
        f"{1e6 * whole:.1f}",
        f"{100 * matrices / whole:.0f} %",
        f"{1e-9 * work.memory_bytes / matrices:.1f}",
        f"{1e6 * least.seconds:.1f}",
        f"{100 * least.share(whole):.0f} %",
        least.limit.value,
    ]


def _time(executor: NativeExecutor, rows: int, seconds: float) -> dict[str, float]:
    """10th percentiles over steps of what the stages of one name take together."""
    rng = np.random.default_rng(rows)
    steps: list[dict[str, float]] = []
    end = time.monotonic() + seconds
    while len(steps) < 10 or time.monotonic() < end:
        total: dict[str, float] = {}
        for name, took in executor.profile(_batch(rng.integers(0, TOKENS, rows, dtype=np.int32))):
            total[name] = total.get(name, 0.0) + took
        steps.append(total)
    return {name: float(np.percentile([step[name] for step in steps], 10)) for name in steps[0]}


def _batch(token_ids: np.ndarray) -> StepBatch:
    """Each row a sequence of one token: there is no attention that would tell them apart."""
    count = len(token_ids)
    return StepBatch(
        token_ids=token_ids,
        positions=np.zeros(count, np.int32),
        seq_starts=np.arange(count + 1, dtype=np.int32),
        context_lens=np.ones(count, np.int32),
        block_tables=np.zeros((1, count, 1), np.int32),
        slot_mapping=np.zeros((1, count), np.int32),
        logit_rows=np.zeros(0, np.int32),
    )


def _executor(program: Program, weights: dict[str, LoadedWeight], threads: int, rows: int) -> NativeExecutor:
    specs = (AttentionSpec(num_kv_heads=1, head_dim=8, window=None),)
    return NativeExecutor(
        program,
        weights,
        lay_out(specs, num_blocks=2, block_size=16, dtype=KVDtype.FP16),
        threads=threads,
        isa="auto",
        max_tokens=rows,
        max_rows=1,
        max_seqs=rows,
        max_positions=TOKENS,
    )


def _noise(rng: np.random.Generator, tensor_type: TensorType, outputs: int, inputs: int) -> LoadedWeight:
    return _stored(tensor_type, rng.standard_normal((outputs, inputs), dtype=np.float32) / np.float32(inputs**0.5))


def _stored(tensor_type: TensorType, values: np.ndarray) -> LoadedWeight:
    return LoadedWeight.of(tensor_type, values.shape, quantize(tensor_type, values))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("experts", 8), ("active", 2), ("hidden", 576), ("inner", 1536), ("layers", 24)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--format", default="Q4_1", choices=[t.name for t in TensorType])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 128, 512])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for each number of rows")
    parser.add_argument("--md", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
