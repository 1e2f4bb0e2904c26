"""Single steps of the native executor, without an engine around it: cases, batches, times."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.errors import ConfigError
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import StepBatch
from octavo.execution.weights import LoadedWeight
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.model.cost import StepShape
from octavo.model.program import CacheLayer, Program

BLOCK_SIZE = 16


@dataclass(frozen=True)
class StepCase:
    """A step of equal sequences: each runs its last `tokens` tokens and then has `context` in the cache."""

    sequences: int
    tokens: int
    context: int
    verifies: bool = False
    """All tokens but a sequence's first are drafts: each has a row of logits. Else only the last has one."""

    @classmethod
    def parse(cls, text: str) -> "StepCase":
        """`decode:BATCH:CONTEXT`, `verify:BATCH:DRAFTS:CONTEXT`, `prefill:TOKENS`, or `prefill:TOKENS:CONTEXT` for a
        later piece of a prompt.

        Raises:
            ConfigError: anything else.
        """
        kind, *numbers = text.split(":")
        match kind, [int(number) for number in numbers if number.isdigit() and int(number) > 0]:
            case "decode", [sequences, context]:
                return cls(sequences, 1, context)
            case "verify", [sequences, drafts, context] if drafts < context:
                return cls(sequences, 1 + drafts, context, verifies=True)
            case "prefill", [tokens]:
                return cls(1, tokens, tokens)
            case "prefill", [tokens, context] if tokens <= context:
                return cls(1, tokens, context)
        forms = "decode:BATCH:CONTEXT, verify:BATCH:DRAFTS:CONTEXT, prefill:TOKENS or prefill:TOKENS:CONTEXT"
        raise ConfigError("case", text, f"must be {forms}")

    def __str__(self) -> str:
        if self.verifies:
            return f"verify:{self.sequences}:{self.tokens - 1}:{self.context}"
        if self.tokens == 1:
            return f"decode:{self.sequences}:{self.context}"
        return f"prefill:{self.tokens}" + (f":{self.context}" if self.context > self.tokens else "")

    @property
    def total_tokens(self) -> int:
        return self.sequences * self.tokens

    @property
    def logit_rows(self) -> int:
        return self.total_tokens if self.verifies else self.sequences

    @property
    def shape(self) -> StepShape:
        """The step as `octavo.model.cost` prices it."""
        return StepShape((self.tokens,) * self.sequences, (self.context,) * self.sequences, self.logit_rows)


def layout_of(layers: Sequence[CacheLayer], num_blocks: int, dtype: KVDtype = KVDtype.FP16) -> KVLayout:
    """The engine's layout for these cache layers."""
    specs = tuple(AttentionSpec(num_kv_heads=c.kv_heads, head_dim=c.head_dim, window=c.window) for c in layers)
    return lay_out(specs, num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype=dtype)


def blocks_for(layers: Sequence[CacheLayer], cases: Sequence[StepCase]) -> int:
    """Blocks that the largest of the cases takes, the null block included."""
    groups = len(layout_of(layers, 1).groups)
    return 1 + groups * max(case.sequences * -(-case.context // BLOCK_SIZE) for case in cases)


def build_executor(
    program: Program,
    weights: Mapping[str, LoadedWeight],
    cases: Sequence[StepCase],
    *,
    threads: int,
    isa: str,
    num_blocks: int | None = None,
    kv_dtype: KVDtype = KVDtype.FP16,
) -> NativeExecutor:
    """An executor that can run any of the cases.

    Args:
        num_blocks: size of the block pool; None: what the largest case needs.
        kv_dtype: number format of K and V.
    """
    return NativeExecutor(
        program,
        weights,
        layout_of(program.cache_layers, num_blocks or blocks_for(program.cache_layers, cases), kv_dtype),
        threads=threads,
        isa=isa,
        max_tokens=max(case.total_tokens for case in cases),
        max_rows=max(case.logit_rows for case in cases),
        max_seqs=max(case.sequences for case in cases),
        max_positions=max(case.context for case in cases),
    )


def make_batch(layout: KVLayout, case: StepCase, vocab_size: int, seed: int = 0) -> StepBatch:
    """The arrays of a case: random tokens, blocks in a shuffled order."""
    rng = np.random.default_rng(seed)
    groups, per_sequence = len(layout.groups), -(-case.context // BLOCK_SIZE)
    wanted = groups * case.sequences * per_sequence
    ids = 1 + rng.permutation(layout.num_blocks - 1)[:wanted].astype(np.int32)
    tables = ids.reshape(groups, case.sequences, per_sequence)
    first = case.context - case.tokens
    positions = np.tile(np.arange(first, case.context, dtype=np.int32), case.sequences)
    rows = np.repeat(np.arange(case.sequences), case.tokens)
    starts = np.arange(case.sequences + 1, dtype=np.int32) * case.tokens
    slots = tables[:, rows, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    return StepBatch(
        token_ids=rng.integers(0, vocab_size, case.total_tokens, dtype=np.int32),
        positions=positions,
        seq_starts=starts,
        context_lens=np.full(case.sequences, case.context, np.int32),
        block_tables=tables,
        slot_mapping=slots.astype(np.int32),
        logit_rows=np.arange(case.total_tokens, dtype=np.int32) if case.verifies else starts[1:] - 1,
    )


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one kind of step, repeated.

    `wall_s` is the median of whole calls, `best_s` the 10th percentile; `caller_cpu_s` the 20th percentile of the
    caller's CPU time, which with one thread is all of it. `stages` holds the 10th percentile of each stage by the
    clock, from the end of the one before it, added up by name: what they take when nobody interferes.
    """

    wall_s: float
    best_s: float
    caller_cpu_s: float
    stages: dict[str, float]
    repeats: int

    @property
    def stages_s(self) -> float:
        return sum(self.stages.values())


def time_step(
    executor: NativeExecutor, batches: Sequence[StepBatch], seconds: float, *, least: int = 5, by_stage: bool = True
) -> StepTimes:
    """Runs the batches in turns for about `seconds`, at least `least` times, after one run that does not count.

    Args:
        by_stage: every other run is one that tells the time of each stage; else `stages` stays empty.
    """
    executor.run(batches[0])
    wall: list[float] = []
    cpu: list[float] = []
    profiles: list[list[tuple[str, float]]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(wall) < least:
        batch = batches[len(wall) % len(batches)]
        started, started_cpu = time.perf_counter(), time.thread_time()
        executor.run(batch)
        cpu.append(time.thread_time() - started_cpu)
        wall.append(time.perf_counter() - started)
        if by_stage:
            profiles.append(executor.profile(batches[len(profiles) % len(batches)]))
    return StepTimes(
        wall_s=float(np.median(wall)),
        best_s=float(np.percentile(wall, 10)),
        caller_cpu_s=float(np.percentile(cpu, 20)),
        stages=add_up(profiles),
        repeats=len(wall),
    )


def add_up(profiles: Sequence[Sequence[tuple[str, float]]]) -> dict[str, float]:
    """Equal lists of (stage, seconds), one per run, to seconds by name: the 10th percentile of each place, summed."""
    if not profiles:
        return {}
    quiet = np.percentile([[seconds for _, seconds in run] for run in profiles], 10, axis=0)
    by_name: dict[str, float] = {}
    for (name, _), seconds in zip(profiles[0], quiet.tolist(), strict=True):
        by_name[name] = by_name.get(name, 0.0) + seconds
    return by_name
