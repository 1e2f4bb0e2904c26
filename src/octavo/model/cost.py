"""What a step of a program costs: floating-point operations and bytes moved, op by op.

Conventions, the usual ones of roofline estimates: a multiply-add counts two; every weight of an op is read once per
step, however many tokens run, but of experts those only that some token is expected to be routed to (expert_use.py);
K and V of a sequence are read once per layer and step as far as the window reaches back; every buffer is written once
and read once per use, as if no op were fused. What is priced is what runs: executors and this module read the same
program.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from octavo.model.dataflow import reads, weights_of, writes
from octavo.model.expert_use import expected_experts
from octavo.model.program import (
    Activate,
    Add,
    Attention,
    CacheWrite,
    Embed,
    EmbedPositions,
    Experts,
    GatedActivation,
    LayerNorm,
    Linear,
    Logits,
    Op,
    Program,
    RmsNorm,
    Rope,
    Route,
    Scale,
    SelectRows,
    SigmoidScale,
)
from octavo.visible_pairs import visible_pairs

_FLOAT_BYTES = 4
"""Buffers are float32."""


@dataclass(frozen=True)
class Cost:
    """Work of an op or a program. `bytes` counts weights, KV and buffers."""

    flops: int
    bytes: int

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True)
class StepShape:
    """One step as far as its cost depends on it.

    Sequence s runs `scheduled[s]` tokens, its last ones; afterwards `contexts[s]` tokens of it are in the cache.
    """

    scheduled: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: int
    """Tokens whose logits are wanted."""

    def __post_init__(self) -> None:
        if len(self.scheduled) != len(self.contexts):
            raise ValueError(f"{len(self.scheduled)} scheduled counts for {len(self.contexts)} contexts")
        if any(not 0 < n <= c for n, c in zip(self.scheduled, self.contexts, strict=True)):
            raise ValueError(f"scheduled {self.scheduled} must be positive and within contexts {self.contexts}")

    @property
    def tokens(self) -> int:
        return sum(self.scheduled)


@dataclass(frozen=True)
class _Pricing:
    program: Program
    step: StepShape
    kv_value_bytes: int

    def count(self, buffer: str) -> int:
        """Values of a buffer in this step."""
        b = self.program.buffers[buffer]
        return b.width * (self.step.tokens if b.dim == "tokens" else self.step.rows)


def cost(
    op: Op, program: Program, step: StepShape, weight_bytes: Mapping[str, int], *, kv_value_bytes: int = 2
) -> Cost:
    """The cost of one op.

    Args:
        weight_bytes: stored bytes of each weight, by canonical name.
        kv_value_bytes: bytes of one cached K or V value.
    """
    pricing = _Pricing(program, step, kv_value_bytes)
    touched = sum(pricing.count(name) for name in _touched_buffers(op))
    weights = sum(weight_bytes[name] for name in weights_of(op))
    if isinstance(op, Embed | EmbedPositions):
        weights = weights * step.tokens // program.weights[op.weight].shape[0]
    if isinstance(op, Experts):
        weights = round(weights * expected_experts(len(op.gate), num_active(op, program), step.tokens) / len(op.gate))
    return Cost(_FLOPS[type(op)](pricing, op), weights + _kv_bytes(pricing, op) + touched * _FLOAT_BYTES)


def program_cost(
    program: Program, step: StepShape, weight_bytes: Mapping[str, int], *, kv_value_bytes: int = 2
) -> Cost:
    """The cost of one step of the whole program."""
    costs = (cost(op, program, step, weight_bytes, kv_value_bytes=kv_value_bytes) for op in program.ops)
    return sum(costs, Cost(0, 0))


def num_parameters(program: Program) -> int:
    """Values in all weights; tied ones count once."""
    return sum(prod(weight.shape) for weight in program.weights.values())


def kv_values_per_token(program: Program) -> int:
    """Values of K and V that one token of context adds over all layers."""
    return sum(2 * layer.kv_heads * layer.head_dim for layer in program.cache_layers)


def _touched_buffers(op: Op) -> tuple[str, ...]:
    """Buffers read, then written; a selection reads only what it writes."""
    if isinstance(op, SelectRows):
        return (op.out, op.out)
    out = writes(op)
    return reads(op) if out is None else (*reads(op), out)


def num_active(op: Experts, program: Program) -> int:
    """Experts that a row meets: its routes hold an id and a weight for each."""
    return program.buffers[op.routes].width // 2


def _linear_flops(p: _Pricing, op: Linear | Logits) -> int:
    multiply_adds = p.count(op.x) * p.program.buffers[op.out].width
    return 2 * multiply_adds + (p.count(op.out) if isinstance(op, Linear) and op.bias is not None else 0)


def _experts_flops(p: _Pricing, op: Experts) -> int:
    """Three products, the activation and a term of the sum for each row and expert that meet."""
    inner, width = p.program.weights[op.gate[0]].shape
    return p.step.tokens * num_active(op, p.program) * (6 * inner * width + 5 * inner + 2 * width)


def _attention_flops(p: _Pricing, op: Attention) -> int:
    """Two products per pair and head, and about five operations of the softmax."""
    layer = p.program.cache_layers[op.layer]
    pairs = sum(visible_pairs(n, c, layer.window) for n, c in zip(p.step.scheduled, p.step.contexts, strict=True))
    return pairs * op.heads * (4 * layer.head_dim + 5)


def _kv_bytes(p: _Pricing, op: Op) -> int:
    if not isinstance(op, Attention | CacheWrite):
        return 0
    layer = p.program.cache_layers[op.layer]
    per_token = 2 * layer.kv_heads * layer.head_dim * p.kv_value_bytes
    if isinstance(op, CacheWrite):
        return p.step.tokens * per_token
    reach = (
        c if layer.window is None else min(c, n - 1 + layer.window)
        for n, c in zip(p.step.scheduled, p.step.contexts, strict=True)
    )
    return sum(reach) * per_token


def _none(p: _Pricing, op: Op) -> int:
    return 0


def _per_output(operations: int) -> Callable[[_Pricing, Any], int]:
    """So many operations for each value written."""
    return lambda p, op: operations * p.count(op.out)


_FLOPS: dict[type[Op], Callable[[_Pricing, Any], int]] = {
    Embed: _per_output(1),
    EmbedPositions: _none,
    Linear: _linear_flops,
    RmsNorm: _per_output(4),
    LayerNorm: _per_output(7),
    Rope: lambda p, op: 3 * p.count(op.x),
    CacheWrite: _none,
    Attention: _attention_flops,
    GatedActivation: _per_output(5),
    Activate: _per_output(4),
    Route: lambda p, op: 5 * p.count(op.logits),
    Experts: _experts_flops,
    SigmoidScale: _per_output(1),
    Add: _per_output(1),
    Scale: _per_output(1),
    SelectRows: _none,
    Logits: _linear_flops,
}
