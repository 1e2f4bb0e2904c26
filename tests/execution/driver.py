"""Drives a `ProgramExecutor` in tests: token sequences in steps of any shape, over shuffled blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from octavo.execution.protocols import Float32, Int32, ProgramExecutor, StepBatch
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.model.program import Program
from octavo.scheduling.plan import BlockCopy


def layout_for(
    program: Program,
    *,
    tokens: int,
    sequences: int = 1,
    block_size: int = 16,
    dtype: KVDtype = KVDtype.FP32,
    beside: Program | None = None,
) -> KVLayout:
    """A layout in which so many sequences of so many tokens fit, of two programs if there is a second."""
    specs, more = _specs(program), () if beside is None else _specs(beside)
    small = lay_out(specs, num_blocks=1, block_size=block_size, dtype=dtype, beside=more)
    needed = 1 + sequences * small.blocks_per_request(tokens)
    return lay_out(specs, num_blocks=needed, block_size=block_size, dtype=dtype, beside=more)


def _specs(program: Program) -> tuple[AttentionSpec, ...]:
    return tuple(
        AttentionSpec(num_kv_heads=layer.kv_heads, head_dim=layer.head_dim, window=layer.window)
        for layer in program.cache_layers
    )


@dataclass
class Live:
    """A sequence in the KV memory."""

    token_ids: Int32
    blocks: list[list[int]]
    """[group] -> block table."""
    computed: int = 0


@dataclass
class Driver:
    """Hands out blocks in a shuffled order and turns work into batches."""

    executor: ProgramExecutor
    seed: int = 0
    free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        usable = np.arange(1, self.executor.layout.num_blocks)
        self.free = np.random.default_rng(self.seed).permutation(usable).tolist()

    def start(self, token_ids: Sequence[int]) -> Live:
        """A sequence none of whose tokens has run."""
        return Live(np.array(token_ids, np.int32), [[] for _ in self.executor.layout.groups])

    def finish(self, live: Live) -> None:
        """Gives the sequence's blocks back."""
        self.free += [block for table in live.blocks for block in table]
        live.blocks = []

    def batch(self, work: Sequence[tuple[Live, int]], copies: Sequence[BlockCopy] = ()) -> StepBatch:
        """The next `count` tokens of each sequence; logits of the last token of each."""
        for live, count in work:
            self._grow(live, live.computed + count)
        counts = np.array([count for _, count in work], np.int32)
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        positions = np.concatenate([live.computed + np.arange(count, dtype=np.int32) for live, count in work])
        width = max(len(live.blocks[0]) for live, _ in work)
        tables = np.zeros((len(self.executor.layout.groups), len(work), width), np.int32)
        for row, (live, _) in enumerate(work):
            for group, table in enumerate(live.blocks):
                tables[group, row, : len(table)] = table
        size = self.executor.layout.block_size
        blocks = tables[:, np.repeat(np.arange(len(work)), counts), positions // size]
        return StepBatch(
            token_ids=np.concatenate([live.token_ids[live.computed :][:count] for live, count in work]),
            positions=positions,
            seq_starts=starts,
            context_lens=np.array([live.computed + count for live, count in work], np.int32),
            block_tables=tables,
            slot_mapping=(blocks * size + positions % size).astype(np.int32),
            logit_rows=starts[1:] - 1,
            block_copies=copies,
        )

    def step(self, work: Sequence[tuple[Live, int]], copies: Sequence[BlockCopy] = ()) -> Float32:
        """Runs the next tokens of each sequence; returns a copy of the last logits of each."""
        logits = self.executor.run(self.batch(work, copies)).copy()
        for live, count in work:
            live.computed += count
        return logits

    def score(self, token_ids: Sequence[int], first: int, *, chunk: int = 512) -> Iterator[tuple[Int32, Float32]]:
        """Runs one sequence in chunks and yields (positions, logits) of position `first` and all later ones.

        Logits come in pieces of at most the executor's `max_rows`; a piece is good until the next one is asked for.
        """
        live = self.start(token_ids)
        while live.computed < len(live.token_ids):
            begin = live.computed
            self.step([(live, min(chunk, len(live.token_ids) - begin))])
            for start in range(max(begin, first), live.computed, self.executor.max_rows):
                positions = np.arange(start, min(start + self.executor.max_rows, live.computed), dtype=np.int32)
                yield positions, self.executor.logits(positions - np.int32(begin))
        self.finish(live)

    def _grow(self, live: Live, tokens: int) -> None:
        needed = -(-tokens // self.executor.layout.block_size)
        for table in live.blocks:
            while len(table) < needed:
                table.append(self.free.pop())
