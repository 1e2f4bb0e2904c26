"""What rows cost, whoever else is in their step: the prices of a program by row, pair and token read.

`octavo.model.cost` prices a whole step. All its terms but the weights are sums over the rows of the step, so that a
row's part can be told without its neighbours; the prices here are read off from there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.model.cost import Cost, StepShape, cost, num_active
from octavo.model.dataflow import multiplied_weight, weights_of
from octavo.model.expert_use import expected_experts
from octavo.model.program import Attention, CacheWrite, Embed, Experts, Op, Program


@dataclass(frozen=True)
class Flops:
    """Operations, by the numbers that they are done with."""

    int8: int = 0
    """Products of linears whose weights have an integer format."""
    floats: int = 0

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.int8 + other.int8, self.floats + other.floats)

    def times(self, count: int) -> "Flops":
        """Of so many."""
        return Flops(self.int8 * count, self.floats * count)

    @property
    def total(self) -> int:
        return self.int8 + self.floats


@dataclass(frozen=True)
class ExpertRates:
    """The experts of all layers that choose as many out of as many."""

    num_experts: int
    num_active: int
    num_bytes: int
    """Of all their weights."""

    def step_bytes(self, num_rows: float) -> float:
        """Bytes of those that a step of so many rows is expected to read."""
        return self.num_bytes * expected_experts(self.num_experts, self.num_active, num_rows) / self.num_experts


@dataclass(frozen=True)
class RowRates:
    """Prices of a program."""

    per_row: Flops
    per_sampled: Flops
    """More, of a row whose logits are made."""
    pair_flops: tuple[int, ...]
    """For each reach: of a (query, key) pair of attention, over all layers that see so far. Floats."""
    weight_bytes: int
    """Read once by a step, however many rows it has; without experts."""
    embed_bytes: float
    """Of the embedding table, read by a row."""
    kv_read_bytes: tuple[int, ...]
    """For each reach: of a token whose K and V are read, over all layers that see so far."""
    kv_write_bytes: int
    """Written by a row."""
    experts: tuple[ExpertRates, ...] = ()
    """Of each size of layer."""

    def step_bytes(self, num_rows: float) -> float:
        """Bytes of weights that a step of so many rows reads, embeddings aside: of experts, as many as are expected."""
        return self.weight_bytes + sum(each.step_bytes(num_rows) for each in self.experts)


def row_rates(
    program: Program,
    weight_bytes: Mapping[str, int],
    kv_layer_bytes: Sequence[int],
    reaches: Sequence[int | None],
    int8_weights: frozenset[str],
) -> RowRates:
    """Reads the prices off.

    Args:
        weight_bytes: stored bytes of each weight, by canonical name.
        kv_layer_bytes: for each cache layer, bytes of a token's K and V.
        reaches: for which windows pairs and reads are told apart.
        int8_weights: names of those that have an integer format.
    """
    per_row, per_sampled = Flops(), Flops()
    for op in program.ops:
        row, sampled = _flops(op, program, weight_bytes)
        is_int8 = multiplied_weight(op) in int8_weights
        per_row += Flops(int8=row) if is_int8 else Flops(floats=row)
        per_sampled += Flops(int8=sampled) if is_int8 else Flops(floats=sampled)
    tables = [op.weight for op in program.ops if isinstance(op, Embed)]
    read = {name for op in program.ops if not isinstance(op, Embed | Experts) for name in weights_of(op)}
    written = [op.layer for op in program.ops if isinstance(op, CacheWrite)]
    seen = [op for op in program.ops if isinstance(op, Attention)]
    windows = [program.cache_layers[op.layer].window for op in seen]
    return RowRates(
        per_row=per_row,
        per_sampled=per_sampled,
        pair_flops=tuple(
            sum(_pair_flops(op, program) for op, window in zip(seen, windows, strict=True) if window == reach)
            for reach in reaches
        ),
        weight_bytes=sum(weight_bytes[name] for name in read),
        experts=_expert_rates(program, weight_bytes),
        embed_bytes=sum(weight_bytes[name] / program.weights[name].shape[0] for name in tables),
        kv_read_bytes=tuple(
            sum(kv_layer_bytes[op.layer] for op, window in zip(seen, windows, strict=True) if window == reach)
            for reach in reaches
        ),
        kv_write_bytes=sum(kv_layer_bytes[layer] for layer in written),
    )


def _expert_rates(program: Program, weight_bytes: Mapping[str, int]) -> tuple[ExpertRates, ...]:
    sizes: dict[tuple[int, int], int] = {}
    for op in program.ops:
        if isinstance(op, Experts):
            kind = len(op.gate), num_active(op, program)
            sizes[kind] = sizes.get(kind, 0) + sum(weight_bytes[name] for name in weights_of(op))
    return tuple(ExpertRates(*kind, num_bytes) for kind, num_bytes in sizes.items())


def _flops(op: Op, program: Program, weight_bytes: Mapping[str, int]) -> tuple[int, int]:
    """Of a row, and more of one whose logits are made; without pairs of attention."""
    if isinstance(op, Attention):
        return 0, 0
    alone, two_rows, two_sampled = (
        _priced(op, program, weight_bytes, tokens, rows).flops for tokens, rows in ((1, 1), (2, 1), (1, 2))
    )
    return two_rows - alone, two_sampled - alone


def _pair_flops(op: Attention, program: Program) -> int:
    """A row alone sees itself: one pair."""
    return _priced(op, program, {}, 1, 1).flops


def _priced(op: Op, program: Program, weight_bytes: Mapping[str, int], tokens: int, rows: int) -> Cost:
    step = StepShape(scheduled=(tokens,), contexts=(tokens,), rows=rows)
    return cost(op, program, step, weight_bytes, kv_value_bytes=0)
