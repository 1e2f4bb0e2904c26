"""Programs of a few ops on given numbers: float tables that `Embed` looks up stand for the inputs of an op."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from octavo import _native
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import Float32, StepBatch
from octavo.execution.quant import TensorType
from octavo.execution.weights import LoadedWeight
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.model.program import Attention, Buffer, CacheLayer, CacheWrite, Embed, Op, Program, RopeSpec, Weight

ISAS = tuple(_native.available_isas())


@dataclass(frozen=True)
class Setting:
    """How a native executor runs; no setting may change a bit."""

    threads: int = 2
    isa: str = "auto"


DEFAULT = Setting()

NO_CACHE = (CacheLayer(kv_heads=1, head_dim=8),)
"""For programs without attention: the executor wants a cache layer."""


def bits(x: Float32) -> np.ndarray:
    """Floats as integers: equal only if every bit is."""
    return np.ascontiguousarray(x).view(np.uint32)


def float_weight(values: Float32) -> LoadedWeight:
    values = np.ascontiguousarray(values, np.float32)
    return LoadedWeight.of(TensorType.F32, values.shape, values.reshape(-1).view(np.uint8))


def layout_of(cache: Sequence[CacheLayer], num_blocks: int, block_size: int, dtype: KVDtype) -> KVLayout:
    specs = tuple(AttentionSpec(num_kv_heads=c.kv_heads, head_dim=c.head_dim, window=c.window) for c in cache)
    return lay_out(specs, num_blocks=num_blocks, block_size=block_size, dtype=dtype)


@dataclass
class OpRig:
    """Runs some ops on inputs `[tokens, width]`, one row per token, and returns a buffer."""

    inputs: Mapping[str, Float32]
    ops: Sequence[Op]
    weights: Mapping[str, Float32 | LoadedWeight] = field(default_factory=dict)
    extra_buffers: Mapping[str, int] = field(default_factory=dict)
    """Widths of further buffers over tokens."""
    ropes: tuple[RopeSpec, ...] = ()

    def run(self, output: str, setting: Setting = DEFAULT, positions: Sequence[int] | None = None) -> Float32:
        count = len(next(iter(self.inputs.values())))
        widths = {name: values.shape[1] for name, values in self.inputs.items()} | dict(self.extra_buffers)
        tables = {f"table.{name}": values for name, values in self.inputs.items()}
        loaded = {
            name: w if isinstance(w, LoadedWeight) else float_weight(w)
            for name, w in (tables | dict(self.weights)).items()
        }
        program = Program(
            name="ops",
            ops=(*(Embed(out=name, weight=f"table.{name}") for name in self.inputs), *self.ops),
            buffers={name: Buffer(name, "tokens", width) for name, width in widths.items()},
            weights={name: Weight(name, w.shape) for name, w in loaded.items()},
            cache_layers=NO_CACHE,
            ropes=self.ropes,
            outputs={output: output},
            vocab_size=count,
            max_positions=4096,
        )
        layout = layout_of(NO_CACHE, 4, 16, KVDtype.FP32)
        executor = NativeExecutor(
            program, loaded, layout, threads=setting.threads, isa=setting.isa,
            max_tokens=count, max_rows=1, max_seqs=count, max_positions=4096,
        )  # fmt: skip
        self._run_each_row_as_a_sequence(executor, np.array(positions or [0] * count, np.int32))
        return executor.output(output).copy()

    @staticmethod
    def _run_each_row_as_a_sequence(executor: NativeExecutor, positions: np.ndarray) -> None:
        count = len(positions)
        blocks = int(positions.max()) // executor.layout.block_size + 1
        executor._open().run(
            token_ids=np.arange(count, dtype=np.int32),
            positions=positions,
            seq_starts=np.arange(count + 1, dtype=np.int32),
            context_lens=positions + np.int32(1),
            block_tables=np.zeros((1, count, blocks), np.int32),
            slot_mapping=np.zeros((1, count), np.int32),
            logit_rows=np.zeros(0, np.int32),
            copies=[],
        )


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """Attention of one layer over sequences whose q, k and v are random."""

    lengths: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    window: int | None = None
    softcap: float | None = None
    scale: float = 0.125
    dtype: KVDtype = KVDtype.FP32
    block_size: int = 16
    seed: int = 0
    size: float = 1.0
    """Standard deviation of q and k: large ones make sharp softmaxes."""

    def tables(self) -> dict[str, Float32]:
        """q, k, v `[tokens of all sequences, width]`, sequence after sequence."""
        rng = np.random.default_rng(self.seed)
        total = sum(self.lengths)
        q = rng.standard_normal((total, self.heads * self.head_dim)) * self.size
        k = rng.standard_normal((total, self.kv_heads * self.head_dim)) * self.size
        v = rng.standard_normal((total, self.kv_heads * self.head_dim))
        return {"q": q.astype(np.float32), "k": k.astype(np.float32), "v": v.astype(np.float32)}


class AttentionRig:
    """A native executor of one attention layer; token id = row of the case's tables."""

    def __init__(
        self,
        case: AttentionCase,
        setting: Setting = DEFAULT,
        *,
        tables: dict[str, Float32] | None = None,
        num_blocks: int | None = None,
    ) -> None:
        self.case = case
        tables = case.tables() if tables is None else tables
        cache = (CacheLayer(kv_heads=case.kv_heads, head_dim=case.head_dim, window=case.window),)
        weights = {f"table.{name}": float_weight(values) for name, values in tables.items()}
        mixed = tables["q"].shape[1]
        program = Program(
            name="attention",
            ops=(
                *(Embed(out=name, weight=f"table.{name}") for name in tables),
                CacheWrite(k="k", v="v", layer=0),
                Attention(q="q", out="mixed", layer=0, heads=case.heads, scale=case.scale, softcap=case.softcap),
            ),
            buffers={name: Buffer(name, "tokens", t.shape[1]) for name, t in tables.items()}
            | {"mixed": Buffer("mixed", "tokens", mixed)},
            weights={name: Weight(name, w.shape) for name, w in weights.items()},
            cache_layers=cache,
            ropes=(),
            outputs={"mixed": "mixed"},
            vocab_size=len(tables["q"]),
            max_positions=1 << 20,
        )
        blocks = [-(-length // case.block_size) for length in case.lengths]
        shuffled = np.random.default_rng(1).permutation(np.arange(1, 1 + sum(blocks))).astype(np.int32)
        self.tables = np.split(shuffled, np.cumsum(blocks)[:-1])
        """[sequence] -> block table"""
        self.firsts = np.concatenate(([0], np.cumsum(case.lengths)))
        self.executor = NativeExecutor(
            program, weights, layout_of(cache, num_blocks or 1 + sum(blocks), case.block_size, case.dtype),
            threads=setting.threads, isa=setting.isa,
            max_tokens=sum(case.lengths), max_rows=1, max_seqs=64, max_positions=1 << 20,
        )  # fmt: skip

    def step(self, work: Sequence[tuple[int, int, int]]) -> list[Float32]:
        """Runs (sequence, first position, end position) together; returns the mixed rows of each."""
        size = self.case.block_size
        counts = [end - first for _, first, end in work]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        positions = np.concatenate([np.arange(first, end, dtype=np.int32) for _, first, end in work])
        owners = np.repeat([sequence for sequence, _, _ in work], counts)
        tables = np.zeros((1, len(work), max(len(self.tables[s]) for s, _, _ in work)), np.int32)
        for row, (sequence, _, _) in enumerate(work):
            tables[0, row, : len(self.tables[sequence])] = self.tables[sequence]
        rows = np.repeat(np.arange(len(work)), counts)
        batch = StepBatch(
            token_ids=(self.firsts[owners] + positions).astype(np.int32),
            positions=positions,
            seq_starts=starts,
            context_lens=np.array([end for _, _, end in work], np.int32),
            block_tables=tables,
            slot_mapping=(tables[:, rows, positions // size] * size + positions % size).astype(np.int32),
            logit_rows=np.zeros(0, np.int32),
        )
        self.executor._open().run(
            token_ids=batch.token_ids,
            positions=batch.positions,
            seq_starts=batch.seq_starts,
            context_lens=batch.context_lens,
            block_tables=batch.block_tables,
            slot_mapping=batch.slot_mapping,
            logit_rows=batch.logit_rows,
            copies=[],
        )
        mixed = self.executor.output("mixed").copy()
        return [mixed[a:b] for a, b in pairwise(starts)]

    def whole(self) -> list[Float32]:
        """Every sequence alone, in one piece."""
        return [self.step([(s, 0, length)])[0] for s, length in enumerate(self.case.lengths)]

    def in_cuts(self, cuts: Sequence[Sequence[int]], firsts: Sequence[int] | None = None) -> list[Float32]:
        """All sequences together, each in pieces that end at its cuts; a sequence that is done drops out.

        Args:
            firsts: where each begins, if K and V of what stands before are there already; None: at 0.
        """
        pieces = [list(pairwise((first, *ends))) for first, ends in zip(firsts or [0] * len(cuts), cuts, strict=True)]
        out: list[list[Float32]] = [[] for _ in pieces]
        for turn in range(max(map(len, pieces))):
            work = [(s, *ranges[turn]) for s, ranges in enumerate(pieces) if turn < len(ranges)]
            for (s, _, _), rows in zip(work, self.step(work), strict=True):
                out[s].append(rows)
        return [np.concatenate(rows) for rows in out]
