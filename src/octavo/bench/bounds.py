"""What a step or an op must take at least: its bytes over the memory's speed, its operations over the cores' speed."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from octavo.execution.weights import LoadedWeight, weight_bytes
from octavo.model.cost import StepShape, cost
from octavo.model.dataflow import multiplied_weight, weights_of
from octavo.model.program import Op, Program
from octavo.platform.peaks import Peaks


class Limit(StrEnum):
    """What a bound comes from."""

    MEMORY = "memory"
    ARITHMETIC = "arithmetic"


@dataclass(frozen=True)
class Work:
    """What has to be done however well it is done.

    `memory_bytes` counts what no cache can spare: each weight once per step, each sequence's K and V once per layer.
    What ops hand to each other stays in caches and does not count.
    """

    int8_ops: int = 0
    """Products of linears whose weights have an integer format; a multiply and an add count two."""
    float_ops: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.int8_ops + other.int8_ops,
            self.float_ops + other.float_ops,
            self.memory_bytes + other.memory_bytes,
        )

    def __sub__(self, other: "Work") -> "Work":
        return Work(
            self.int8_ops - other.int8_ops,
            self.float_ops - other.float_ops,
            self.memory_bytes - other.memory_bytes,
        )


@dataclass(frozen=True)
class Bound:
    """The least time, and why."""

    seconds: float
    limit: Limit

    def share(self, seconds: float) -> float:
        """How much of the possible speed was reached; above 1 where caches held what counts as memory traffic."""
        return self.seconds / seconds


def work_of(
    op: Op, program: Program, step: StepShape, weights: Mapping[str, LoadedWeight], *, kv_value_bytes: int = 2
) -> Work:
    """The work of one op.

    Args:
        kv_value_bytes: bytes of one cached K or V value.
    """
    named = {name: weights[name] for name in weights_of(op)}
    whole = cost(op, program, step, weight_bytes(named), kv_value_bytes=kv_value_bytes)
    between_ops = cost(op, program, step, dict.fromkeys(named, 0), kv_value_bytes=0)
    matrix = multiplied_weight(op)
    is_int8 = matrix is not None and not weights[matrix].type.is_float
    return Work(
        int8_ops=whole.flops if is_int8 else 0,
        float_ops=0 if is_int8 else whole.flops,
        memory_bytes=whole.bytes - between_ops.bytes,
    )


def step_work(
    program: Program, step: StepShape, weights: Mapping[str, LoadedWeight], *, kv_value_bytes: int = 2
) -> Work:
    """The work of a step of the whole program."""
    parts = (work_of(op, program, step, weights, kv_value_bytes=kv_value_bytes) for op in program.ops)
    return sum(parts, Work())


def bound(work: Work, peaks: Peaks) -> Bound:
    """The least time on a machine of these peaks: memory and arithmetic side by side, the slower one counts."""
    memory_s = work.memory_bytes / peaks.read_bytes_per_s
    arithmetic_s = work.int8_ops / peaks.int8_ops_per_s + work.float_ops / peaks.float_ops_per_s
    if memory_s >= arithmetic_s:
        return Bound(memory_s, Limit.MEMORY)
    return Bound(arithmetic_s, Limit.ARITHMETIC)
