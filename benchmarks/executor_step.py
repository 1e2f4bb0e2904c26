"""Where the time of a step goes in the native executor, by kind of stage.

Usage: python benchmarks/executor_step.py [--model smollm2-135m] [--threads 1] [--isa auto] [--seconds 3] CASE ...

A CASE is `decode:BATCH:CONTEXT` (one token each of BATCH sequences) or `prefill:TOKENS` (one prompt in one step);
default: decode:1:192 decode:16:192 decode:16:1000 prefill:128 prefill:512.

Built for machines with other work on them. `cpu` is the 20th percentile of the caller's CPU time per step, which with
one thread is all of it. Stage times are by the clock, from the end of one stage to the end of the next; each is the
10th percentile over many steps, so `quiet`, their sum, is what a step takes when nobody interferes (read it as an upper
estimate of the speed).
"""

import argparse
import time
from collections import defaultdict

import numpy as np

from octavo.execution.loader import open_checkpoint
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import StepBatch
from octavo.execution.weights import load_model
from octavo.hub import resolve
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.model.program import Program

CASES = ["decode:1:192", "decode:16:192", "decode:16:1000", "prefill:128", "prefill:512"]
BLOCK = 16


def layout_for(program: Program, num_blocks: int) -> KVLayout:
    layers = program.cache_layers
    specs = tuple(AttentionSpec(num_kv_heads=c.kv_heads, head_dim=c.head_dim, window=c.window) for c in layers)
    return lay_out(specs, num_blocks=num_blocks, block_size=BLOCK, dtype=KVDtype.FP16)


def make_batch(layout: KVLayout, sequences: int, first: int, count: int) -> StepBatch:
    """`count` tokens of each sequence from position `first` on; blocks lie in a shuffled order."""
    rng = np.random.default_rng(0)
    groups, per_sequence = len(layout.groups), -(-(first + count) // BLOCK)
    ids = 1 + rng.permutation(groups * sequences * per_sequence).astype(np.int32)
    tables = ids.reshape(groups, sequences, per_sequence)
    positions = np.tile(np.arange(first, first + count, dtype=np.int32), sequences)
    rows = np.repeat(np.arange(sequences), count)
    starts = np.arange(sequences + 1, dtype=np.int32) * count
    return StepBatch(
        token_ids=rng.integers(0, 30000, sequences * count, dtype=np.int32),
        positions=positions,
        seq_starts=starts,
        context_lens=np.full(sequences, first + count, np.int32),
        block_tables=tables,
        slot_mapping=(tables[:, rows, positions // BLOCK] * BLOCK + positions % BLOCK).astype(np.int32),
        logit_rows=starts[1:] - 1,
    )


def shape_of(case: str) -> tuple[int, int, int]:
    """(sequences, first position, tokens of each)"""
    kind, *numbers = case.split(":")
    if kind == "prefill":
        return 1, 0, int(numbers[0])
    batch, context = map(int, numbers)
    return batch, context - 1, 1


def measure(executor: NativeExecutor, case: str, seconds: float) -> None:
    batch = make_batch(executor.layout, *shape_of(case))
    executor.run(batch)
    cpu, stages = [], []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(cpu) < 10:
        started = time.thread_time()
        executor.run(batch)
        cpu.append(time.thread_time() - started)
        stages.append(executor.profile(batch))
    names = [name for name, _ in stages[0]]
    quiet = np.percentile([[s for _, s in step] for step in stages], 10, axis=0)
    by_name: dict[str, float] = defaultdict(float)
    for name, s in zip(names, quiet, strict=True):
        by_name[name] += s
    step, tokens = sorted(cpu)[len(cpu) // 5], len(batch.token_ids)
    print(f"{case}: cpu {step * 1e3:.2f} ms ({tokens / step:.0f} tokens/s), ", end="")
    print(f"quiet {quiet.sum() * 1e3:.2f} ms ({tokens / quiet.sum():.0f} tokens/s)")
    for name, s in sorted(by_name.items(), key=lambda item: -item[1]):
        print(f"    {s * 1e3:8.3f} ms {100 * s / quiet.sum():5.1f} %  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("cases", nargs="*", default=CASES)
    args = parser.parse_args()
    program, weights = load_model(open_checkpoint(resolve(args.model).files))
    shapes = [shape_of(case) for case in args.cases]
    groups = len(layout_for(program, 1).groups)
    blocks = 1 + groups * max(sequences * -(-(first + count) // BLOCK) for sequences, first, count in shapes)
    executor = NativeExecutor(
        program,
        weights,
        layout_for(program, blocks),
        threads=args.threads,
        isa=args.isa,
        max_tokens=max(sequences * count for sequences, _, count in shapes),
        max_rows=max(sequences for sequences, _, _ in shapes),
        max_seqs=max(sequences for sequences, _, _ in shapes),
        max_positions=max(first + count for _, first, count in shapes),
    )
    print({name: f"{size / 2**20:.0f} MiB" for name, size in executor.num_bytes.items()})
    for case in args.cases:
        measure(executor, case, args.seconds)


if __name__ == "__main__":
    main()
