"""What each op of a program does, in NumPy: one function per op, in a table keyed by the op's type."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.execution.protocols import Float32, Int32, StepBatch
from octavo.execution.reference.attention import attend
from octavo.execution.reference.paged_kv import PagedKV
from octavo.execution.reference.rounding import round_activations
from octavo.execution.reference.routing import route
from octavo.kv.spec import KVLayout
from octavo.model.program import (
    Activate,
    Activation,
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
    RmsNorm,
    Rope,
    RopeSpec,
    Route,
    Scale,
    SelectRows,
    SigmoidScale,
)


@dataclass(frozen=True)
class DenseWeight:
    """A weight's exact values as float32, and whether its inputs are rounded to 8 bits before they meet it."""

    values: Float32
    rounds_inputs: bool
    input_order: Int32 | None = None
    """The order in which inputs are rounded together, where it is not their own."""


@dataclass
class Machine:
    """What ops work on: weights and KV memory for good, batch and buffers of one step."""

    weights: dict[str, DenseWeight]
    ropes: tuple[RopeSpec, ...]
    layout: KVLayout
    kv: PagedKV
    batch: StepBatch
    rows: Int32
    """[R] tokens whose logits are wanted now."""
    buffers: dict[str, Float32] = field(default_factory=dict)
    rotations: dict[int, tuple[Float32, Float32]] = field(default_factory=dict)
    """rope -> cos and sin of the batch's positions, `[tokens, 1, rotary_dim / 2]`."""


def _matmul(x: Float32, weight: DenseWeight) -> Float32:
    product: Float32 = (_rounded(x, weight.input_order) if weight.rounds_inputs else x) @ weight.values.T
    return product


def _rounded(x: Float32, order: Int32 | None) -> Float32:
    if order is None:
        return round_activations(x)
    rounded = np.empty_like(x)
    rounded[:, order] = round_activations(x[:, order])
    return rounded


def _embed(m: Machine, op: Embed) -> None:
    m.buffers[op.out] = m.weights[op.weight].values[m.batch.token_ids] * np.float32(op.scale)


def _embed_positions(m: Machine, op: EmbedPositions) -> None:
    m.buffers[op.out] = m.weights[op.weight].values[m.batch.positions]


def _linear(m: Machine, op: Linear) -> None:
    y = _matmul(m.buffers[op.x], m.weights[op.weight])
    if op.bias is not None:
        y += m.weights[op.bias].values
    m.buffers[op.out] = y


def _rms_norm(m: Machine, op: RmsNorm) -> None:
    x = m.buffers[op.x]
    groups = x.reshape(len(x), op.groups, x.shape[1] // op.groups)
    mean_square = np.mean(groups * groups, axis=-1, keepdims=True)
    normed = groups / np.sqrt(mean_square + np.float32(op.eps)) * m.weights[op.weight].values
    m.buffers[op.out] = normed.reshape(x.shape)


def _layer_norm(m: Machine, op: LayerNorm) -> None:
    x = m.buffers[op.x]
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    normed = centred / np.sqrt(variance + np.float32(op.eps)) * m.weights[op.weight].values
    m.buffers[op.out] = normed if op.bias is None else normed + m.weights[op.bias].values


def _rope(m: Machine, op: Rope) -> None:
    cos, sin = _rotation(m, op.rope)
    half = cos.shape[-1]
    x = m.buffers[op.x].reshape(-1, op.heads, op.head_dim)
    first, second = x[..., :half], x[..., half : 2 * half]
    rotated = np.concatenate((first * cos - second * sin, second * cos + first * sin, x[..., 2 * half :]), axis=-1)
    m.buffers[op.x] = rotated.reshape(len(x), -1)


def _rotation(m: Machine, rope: int) -> tuple[Float32, Float32]:
    """Angles are formed in double: at position 100000 a float32 product would be off by several milliradians."""
    if rope not in m.rotations:
        spec = m.ropes[rope]
        angles = m.batch.positions.astype(np.float64)[:, None, None] * np.array(spec.inv_freq)
        m.rotations[rope] = (
            (np.cos(angles) * spec.magnitude).astype(np.float32),
            (np.sin(angles) * spec.magnitude).astype(np.float32),
        )
    return m.rotations[rope]


def _cache_write(m: Machine, op: CacheWrite) -> None:
    group, _ = m.layout.placement[op.layer]
    m.kv.write(op.layer, m.batch.slot_mapping[group], m.buffers[op.k], m.buffers[op.v])


def _attention(m: Machine, op: Attention) -> None:
    group, _ = m.layout.placement[op.layer]
    spec = m.kv.specs[op.layer]
    q = m.buffers[op.q].reshape(-1, op.heads, spec.head_dim)
    out = np.empty_like(q)
    for sequence, context in enumerate(m.batch.context_lens.tolist()):
        rows = slice(*m.batch.seq_starts[sequence : sequence + 2].tolist())
        positions = m.batch.positions[rows]
        first = spec.first_needed(int(positions[0]))
        k, v = m.kv.read(op.layer, m.batch.block_tables[group, sequence], first, context)
        out[rows] = attend(op, q[rows], k, v, positions, first, spec.window)
    m.buffers[op.out] = out.reshape(len(q), -1)


def _silu(x: Float32) -> Float32:
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right answer, -0
        y: Float32 = x / (1 + np.exp(-x))
    return y


def _gelu_tanh(x: Float32) -> Float32:
    inner: Float32 = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    y: Float32 = np.float32(0.5) * x * (1 + np.tanh(inner))
    return y


def _gelu(x: Float32) -> Float32:
    erf = np.frompyfunc(math.erf, 1, 1)(x / np.float32(np.sqrt(2))).astype(np.float32)
    y: Float32 = np.float32(0.5) * x * (1 + erf)
    return y


def _relu(x: Float32) -> Float32:
    return np.maximum(x, np.float32(0))


_ACTIVATIONS = {
    Activation.SILU: _silu,
    Activation.GELU_TANH: _gelu_tanh,
    Activation.GELU: _gelu,
    Activation.RELU: _relu,
}


def _gated_activation(m: Machine, op: GatedActivation) -> None:
    m.buffers[op.out] = _ACTIVATIONS[op.activation](m.buffers[op.gate]) * m.buffers[op.up]


def _activate(m: Machine, op: Activate) -> None:
    m.buffers[op.out] = _ACTIVATIONS[op.activation](m.buffers[op.x])


def _route(m: Machine, op: Route) -> None:
    ids, weights = route(m.buffers[op.logits], op.top_k, op.routing)
    m.buffers[op.out] = np.concatenate((ids.astype(np.float32), weights), axis=1)


def _experts(m: Machine, op: Experts) -> None:
    x = m.buffers[op.x]
    ids, weights = np.split(m.buffers[op.routes], 2, axis=1)
    parts = np.empty((*ids.shape, x.shape[1]), np.float32)
    for expert in np.unique(ids).astype(np.int64).tolist():
        rows, places = np.nonzero(ids == expert)
        gate, up = (_matmul(x[rows], m.weights[names[expert]]) for names in (op.gate, op.up))
        parts[rows, places] = _matmul(_ACTIVATIONS[op.activation](gate) * up, m.weights[op.down[expert]])
    total: Float32 = weights[:, 0, None] * parts[:, 0]
    for place in range(1, ids.shape[1]):
        total = total + weights[:, place, None] * parts[:, place]
    m.buffers[op.out] = total


def _sigmoid_scale(m: Machine, op: SigmoidScale) -> None:
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right answer, 0
        y: Float32 = m.buffers[op.x] / (1 + np.exp(-m.buffers[op.gate]))
    m.buffers[op.out] = y


def _add(m: Machine, op: Add) -> None:
    m.buffers[op.out] = m.buffers[op.x] + m.buffers[op.y]


def _scale(m: Machine, op: Scale) -> None:
    m.buffers[op.out] = m.buffers[op.x] * np.float32(op.factor)


def _select_rows(m: Machine, op: SelectRows) -> None:
    m.buffers[op.out] = m.buffers[op.x][m.rows]


def _logits(m: Machine, op: Logits) -> None:
    scores = _matmul(m.buffers[op.x], m.weights[op.weight])
    if op.softcap is not None:
        scores = np.float32(op.softcap) * np.tanh(scores / np.float32(op.softcap))
    m.buffers[op.out] = scores


OPS: dict[type[Op], Callable[[Machine, Any], None]] = {
    Embed: _embed,
    EmbedPositions: _embed_positions,
    Linear: _linear,
    RmsNorm: _rms_norm,
    LayerNorm: _layer_norm,
    Rope: _rope,
    CacheWrite: _cache_write,
    Attention: _attention,
    GatedActivation: _gated_activation,
    Activate: _activate,
    Route: _route,
    Experts: _experts,
    SigmoidScale: _sigmoid_scale,
    Add: _add,
    Scale: _scale,
    SelectRows: _select_rows,
    Logits: _logits,
}
