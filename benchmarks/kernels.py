"""Each op against its bound: what it takes, what it reads and computes per second, and what the machine would allow.

    python benchmarks/kernels.py [linears] [attention] [rows] [embedding] [sampling] [stages]
                                 [--models smollm2-135m ...] [--formats Q4_1 Q8_0 ...] [--rows 1 4 16 32 128]
                                 [--threads N] [--isa auto] [--seconds 0.3] [--json OUT.json] [--md OUT.md]
    python benchmarks/kernels.py stages --models smollm2-135m --cases decode:1:192 prefill:512

Without names of ops all but `stages` run. The bound of an op is the larger of (bytes it must fetch from memory / the
memory's speed) and (operations / the speed of the cores), both speeds measured at the start with the same threads and
kernel path; see `octavo.bench.bounds` for what counts.

    linears    every format and shape of the three models (where rows are whole blocks); weights stream from 160 MB of
               copies
    attention  one token at long contexts, and pieces of 128 prompt tokens; keys and values stream from 160 MB
    rows       norm, rotation, gate, sum: many times over rows that stay in the cache, so only arithmetic bounds them.
               `norm + quantise` is one stage of the executor, change of stages included.
    embedding  lookups of tokens all over the table
    sampling   rows of the vocabulary; the bound is reading them once
    stages     whole steps of a cached model, by kind of stage; a case is decode:BATCH:CONTEXT, prefill:TOKENS or
               prefill:TOKENS:CONTEXT

Made for machines with other work on them: times are 10th percentiles of many short runs, by the clock. With one thread
`stages` also tells the caller's CPU time.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo._native import ThreadPool
from octavo.bench.bounds import Bound, Work, bound, step_work, work_of
from octavo.bench.machine import hardware, versions
from octavo.bench.single_ops import (
    OpProgram,
    Sizes,
    attention_program,
    embed_program,
    linear_program,
    norm_and_quantise_program,
    row_programs,
)
from octavo.bench.steps import BLOCK_SIZE, StepCase, blocks_for, build_executor, make_batch, time_step
from octavo.decoding.sampler import NativeSampler
from octavo.execution.loader import open_checkpoint
from octavo.execution.native import NativeExecutor
from octavo.execution.quant import NATIVE_TYPES, TensorType
from octavo.execution.weights import load_model
from octavo.hub import resolve
from octavo.kv.spec import KVDtype, bytes_per_token
from octavo.model.program import Activation, CacheLayer
from octavo.platform.cpu import describe_machine
from octavo.platform.peaks import Peaks, measure_peaks
from octavo.request.params import SamplingParams

MODELS = {
    "smollm2-135m": Sizes(576, 9, 3, 64, 1536, 49152),
    "gemma3-270m": Sizes(640, 4, 1, 256, 2048, 262144, Activation.GELU_TANH),
    "qwen2.5-coder-0.5b": Sizes(896, 14, 2, 64, 4864, 151936),
}
STREAM_BYTES = 160 << 20
"""What an op that reads memory has to read before it meets the same bytes again."""
COPIES = 32
"""Row ops of one program."""
QUANTISE_OPS = 4
"""Of one value: magnitude, maximum, product, rounding."""
CONTEXTS = (128, 512, 2048, 8192)
PIECE = 128
SAMPLED: dict[str, dict[str, Any]] = {
    "argmax": {"temperature": 0.0},
    "temperature 1": {},
    "top_k 50": {"top_k": 50},
    "top_p 0.9": {"top_p": 0.9},
    "argmax, 5 logprobs": {"temperature": 0.0, "logprobs": 5},
}
STAGE_CASES = ("decode:1:192", "decode:16:192", "decode:32:192", "decode:16:1000", "prefill:128", "prefill:512")


@dataclass(frozen=True)
class Measured:
    """One op in one case; `seconds` for all its rows."""

    op: str
    case: str
    seconds: float
    work: Work
    bound: Bound

    @property
    def row(self) -> tuple[str, ...]:
        operations = self.work.int8_ops + self.work.float_ops
        return (
            self.op,
            self.case,
            f"{1e6 * self.seconds:.1f}",
            f"{self.work.memory_bytes / self.seconds / 1e9:.1f}",
            f"{operations / self.seconds / 1e9:.0f}",
            f"{1e6 * self.bound.seconds:.1f} ({self.bound.limit})",
            f"{100 * self.bound.share(self.seconds):.0f} %",
        )


HEADER = ("op", "case", "us", "GB/s", "GOP/s", "bound, us", "share")


@dataclass(frozen=True)
class Bench:
    """How to measure: machine and patience."""

    peaks: Peaks
    models: dict[str, Sizes]
    formats: tuple[TensorType, ...]
    rows: tuple[int, ...]
    seconds: float

    def executor(self, ops: OpProgram, cases: Sequence[StepCase], num_blocks: int | None = None) -> NativeExecutor:
        """An executor of the measured path and threads."""
        peaks = self.peaks
        return build_executor(
            ops.program, ops.weights, cases, threads=peaks.threads, isa=peaks.isa, num_blocks=num_blocks
        )

    def measured(self, op: str, case: str, seconds: float, work: Work) -> Measured:
        return Measured(op, case, seconds, work, bound(work, self.peaks))


def one_work(ops: OpProgram, case: StepCase) -> Work:
    """The work of one of the measured ops, which are all alike."""
    return work_of(ops.measured[0], ops.program, case.shape, ops.weights)


def linears(bench: Bench) -> Iterator[Measured]:
    """Every format x shape x rows."""
    for model, sizes in bench.models.items():
        for name, (outputs, inputs) in sizes.linears.items():
            for kind in bench.formats:
                if inputs % kind.block_size == 0:
                    yield from linear(bench, f"{model} {name} {outputs} x {inputs} {kind.name}", kind, outputs, inputs)


def linear(bench: Bench, title: str, kind: TensorType, outputs: int, inputs: int) -> Iterator[Measured]:
    """One format and shape with each number of rows."""
    copies = max(1, -(-STREAM_BYTES // kind.num_bytes((outputs, inputs))))
    ops = linear_program(kind, outputs, inputs, copies)
    cases = [StepCase(rows, 1, 1) for rows in bench.rows]
    executor = bench.executor(ops, cases)
    for case in cases:
        batch = make_batch(executor.layout, case, ops.program.vocab_size)
        stages = time_step(executor, [batch], bench.seconds, least=3).stages
        yield bench.measured(title, f"{case.sequences} rows", stages["linear linear"] / copies, one_work(ops, case))
    executor.close()


def attention(bench: Bench) -> Iterator[Measured]:
    """One token of one sequence at growing contexts, and pieces of a prompt that end there."""
    for model, sizes in bench.models.items():
        layer = CacheLayer(sizes.kv_heads, sizes.head_dim)
        title = f"{model} attention {sizes.heads}/{sizes.kv_heads} x {sizes.head_dim}"
        cases = [case for context in CONTEXTS for case in (StepCase(1, 1, context), StepCase(1, PIECE, context))]
        ops = attention_program(sizes.heads, layer, layers=4)
        executor = streaming_executor(bench, ops, cases)
        for case in cases:
            batches = [make_batch(executor.layout, case, ops.program.vocab_size, seed) for seed in range(8)]
            stages = time_step(executor, batches, bench.seconds, least=8).stages
            yield bench.measured(title, str(case), stages["attention"] / len(ops.measured), one_work(ops, case))
        executor.close()


def streaming_executor(bench: Bench, ops: OpProgram, cases: Sequence[StepCase]) -> NativeExecutor:
    """An executor whose block pool is far larger than the caches and written all over, so that reads are real."""
    fill = StepCase(32, BLOCK_SIZE, BLOCK_SIZE)
    probe = bench.executor(ops, [fill]).layout
    per_block = BLOCK_SIZE * bytes_per_token(probe.groups, KVDtype.FP16)
    num_blocks = max(blocks_for(ops.program.cache_layers, [*cases, fill]), 1 + STREAM_BYTES // per_block)
    executor = bench.executor(ops, [*cases, fill], num_blocks)
    batch = make_batch(executor.layout, fill, ops.program.vocab_size)
    for first in range(1, num_blocks - fill.sequences, fill.sequences):
        batch.block_tables = np.arange(first, first + fill.sequences, dtype=np.int32).reshape(1, -1, 1)
        slots = batch.block_tables[0] * BLOCK_SIZE + np.arange(BLOCK_SIZE, dtype=np.int32)
        batch.slot_mapping = slots.astype(np.int32).reshape(1, -1)
        executor.run(batch)
    return executor


def row_ops(bench: Bench) -> Iterator[Measured]:
    """Norm, rotation, gate and sum of each model's widths."""
    for model, sizes in bench.models.items():
        for name, ops in row_programs(sizes, COPIES).items():
            yield from row_op(bench, f"{model} {name}", ops, 0)
        fused = norm_and_quantise_program(sizes, COPIES)
        yield from row_op(bench, f"{model} norm + quantise", fused, QUANTISE_OPS * sizes.hidden)


def row_op(bench: Bench, title: str, ops: OpProgram, more_per_row: int) -> Iterator[Measured]:
    """One row op with each number of rows; `more_per_row` operations come on top of those of the program's op."""
    cases = [StepCase(rows, 1, 1) for rows in bench.rows]
    executor = bench.executor(ops, cases)
    for case in cases:
        stages = time_step(
            executor, [make_batch(executor.layout, case, ops.program.vocab_size)], bench.seconds / 4
        ).stages
        seconds = sum(s for name, s in stages.items() if not name.startswith("linear"))
        work = Work(float_ops=one_work(ops, case).float_ops + more_per_row * case.sequences)
        yield bench.measured(title, f"{case.sequences} rows", seconds / COPIES, work)
    executor.close()


def embedding(bench: Bench) -> Iterator[Measured]:
    """Rows of each model's table in Q8_0."""
    for model, sizes in bench.models.items():
        ops = embed_program(TensorType.Q8_0, sizes.vocab_size, sizes.hidden)
        cases = [StepCase(rows, 1, 1) for rows in bench.rows]
        executor = bench.executor(ops, cases)
        for case in cases:
            batches = [make_batch(executor.layout, case, ops.program.vocab_size, seed) for seed in range(50)]
            seconds = time_step(executor, batches, bench.seconds / 4).stages_s
            yield bench.measured(f"{model} embedding Q8_0", f"{case.sequences} rows", seconds, one_work(ops, case))
        executor.close()


def sampling(bench: Bench) -> Iterator[Measured]:
    """One row and 32 rows of each vocabulary, with a head of twenty likely tokens."""
    for sizes in bench.models.values():
        for rows in (1, 32):
            logits = made_up_logits(rows, sizes.vocab_size)
            work = Work(memory_bytes=logits.nbytes)
            for name, fields in SAMPLED.items():
                seconds = time_sampling(bench, logits, SamplingParams(seed=0, max_tokens=None, **fields))
                yield bench.measured(f"sampling {name}", f"{rows} rows of {sizes.vocab_size}", seconds, work)


def made_up_logits(rows: int, vocab_size: int) -> np.ndarray:
    """Normal noise with twenty tokens that stand out, like the rows of small language models."""
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal((rows, vocab_size)) * 3.5).astype(np.float32)
    for row in logits:
        row[rng.integers(0, vocab_size, 20)] = np.linspace(24, 14, 20, dtype=np.float32)
    return logits


def time_sampling(bench: Bench, logits: np.ndarray, params: SamplingParams) -> float:
    """Seconds of one call for all rows."""
    sampler = NativeSampler(ThreadPool(bench.peaks.threads), logits.shape[1], logits.shape[1], bench.peaks.isa)
    slots = np.arange(len(logits), dtype=np.int32)
    for slot in slots.tolist():
        sampler.add(slot, params, [], [], [])
    seconds: list[float] = []
    deadline = time.monotonic() + bench.seconds
    while time.monotonic() < deadline or len(seconds) < 5:
        started = time.perf_counter()
        sampler.sample(logits, slots)
        seconds.append(time.perf_counter() - started)
    return float(np.percentile(seconds, 10))


def stages(bench: Bench, cases: Sequence[StepCase]) -> Iterator[str]:
    """Whole steps of cached models: lines to print."""
    for model in bench.models:
        program, weights = load_model(open_checkpoint(resolve(model).files))
        executor = build_executor(program, weights, cases, threads=bench.peaks.threads, isa=bench.peaks.isa)
        yield f"{model}: " + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in executor.num_bytes.items())
        for case in cases:
            times = time_step(executor, [make_batch(executor.layout, case, program.vocab_size)], 10 * bench.seconds)
            least = bound(step_work(program, case.shape, weights), bench.peaks)
            tokens, quiet = case.total_tokens, times.stages_s
            yield (
                f"{case}: wall {1e3 * times.wall_s:.2f} ms ({tokens / times.wall_s:.0f} tokens/s), caller's CPU "
                f"{1e3 * times.caller_cpu_s:.2f} ms, quiet {1e3 * quiet:.2f} ms ({tokens / quiet:.0f} tokens/s), "
                f"bound {1e3 * least.seconds:.2f} ms ({least.limit}, {100 * least.share(quiet):.0f} % reached)"
            )
            for name, s in sorted(times.stages.items(), key=lambda item: -item[1]):
                yield f"    {s * 1e3:8.3f} ms {100 * s / quiet:5.1f} %  {name}"
        executor.close()


OPS: dict[str, Callable[[Bench], Iterator[Measured]]] = {
    "linears": linears,
    "attention": attention,
    "rows": row_ops,
    "embedding": embedding,
    "sampling": sampling,
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help=", ".join((*OPS, "stages")), default=list(OPS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    native = sorted(kind.name for kind in NATIVE_TYPES)
    parser.add_argument("--formats", nargs="+", default=native, choices=native)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 32, 128])
    parser.add_argument("--cases", nargs="+", default=list(STAGE_CASES), help="of `stages`")
    parser.add_argument("--threads", type=int, default=describe_machine().usable_cores)
    parser.add_argument("--isa", default="auto", help="kernel path")
    parser.add_argument("--seconds", type=float, default=0.3, help="per case, about")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--md", type=Path, help="write the table there")
    options = parser.parse_args()
    unknown = set(options.ops) - {*OPS, "stages"}
    if unknown:
        parser.error(f"no such op: {', '.join(sorted(unknown))}; there are {', '.join((*OPS, 'stages'))}")
    return options


def table_line(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measures and prints as it goes; writes files at the end."""
    options = parse()
    load = os.getloadavg()[0]
    peaks = measure_peaks(options.threads, options.isa)
    models = {name: MODELS[name] for name in options.models}
    formats = tuple(TensorType[name] for name in options.formats)
    bench = Bench(peaks, models, formats, tuple(options.rows), options.seconds)
    setting = (
        f"{hardware()['cpu']}, {peaks.threads} threads, kernel path {peaks.isa}, load {load:.1f}; peaks: "
        f"{peaks.read_bytes_per_s / 1e9:.1f} GB/s, {peaks.int8_ops_per_s / 1e9:.0f} GOP/s on bytes, "
        f"{peaks.float_ops_per_s / 1e9:.0f} GOP/s on floats"
    )
    lines = [setting, ""]
    print("\n".join(lines), flush=True)
    measured: list[Measured] = []
    if "stages" in options.ops:
        for line in stages(bench, [StepCase.parse(case) for case in options.cases]):
            print(line, flush=True)
    chosen = [name for name in OPS if name in options.ops]
    if chosen:
        lines += [table_line(HEADER), table_line(["---"] * len(HEADER))]
        print("\n".join(lines[-2:]), flush=True)
    for name in chosen:
        for one in OPS[name](bench):
            measured.append(one)
            lines.append(table_line(one.row))
            print(lines[-1], flush=True)
    if options.json is not None:
        figures = {"peaks": asdict(peaks), "load": load, "hardware": hardware(), "versions": versions()}
        options.json.write_text(json.dumps(figures | {"ops": [asdict(one) for one in measured]}, indent=2) + "\n")
    if options.md is not None:
        options.md.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
