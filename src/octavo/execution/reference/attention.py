"""Causal attention over paged KV, one sequence at a time."""

import numpy as np
import numpy.typing as npt

from octavo.execution.protocols import Float32, Int32
from octavo.model.program import Attention

_ROWS_AT_ONCE = 256
"""Query rows whose scores are held together: bounds them at rows x heads x context floats."""


def attend(
    op: Attention, q: Float32, k: Float32, v: Float32, q_positions: Int32, k_first: int, window: int | None
) -> Float32:
    """Attention of consecutive rows of one sequence.

    Args:
        q: `[n, heads, head_dim]` at `q_positions` `[n]`, ascending by one.
        k, v: `[m, kv_heads, head_dim]` at positions `k_first .. k_first + m - 1`, where the last is q's last position.

    Returns:
        `[n, heads, head_dim]`.
    """
    out = np.empty_like(q)
    for start in range(0, len(q), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        positions = q_positions[rows]
        stop = int(positions[-1]) + 1
        first = k_first if window is None else max(k_first, int(positions[0]) - window + 1)
        seen = slice(first - k_first, stop - k_first)
        out[rows] = _tile(op, q[rows], k[seen], v[seen], positions, np.arange(first, stop, dtype=np.int32), window)
    return out


def _tile(
    op: Attention, q: Float32, k: Float32, v: Float32, q_positions: Int32, k_positions: Int32, window: int | None
) -> Float32:
    n, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    # [kv_heads, n * (heads / kv_heads), head_dim]: the heads that share a KV head stand together.
    grouped = q.reshape(n, kv_heads, -1, head_dim).transpose(1, 0, 2, 3).reshape(kv_heads, -1, head_dim)
    scores = (grouped @ k.transpose(1, 2, 0)).reshape(kv_heads, n, -1, len(k)) * np.float32(op.scale)
    if op.softcap is not None:
        scores = np.float32(op.softcap) * np.tanh(scores / np.float32(op.softcap))
    visible = _visible(q_positions, k_positions, window)
    scores = np.where(visible[None, :, None, :], scores, np.float32(-np.inf))
    mixed = _softmax(scores).reshape(kv_heads, -1, len(k)) @ v.transpose(1, 0, 2)
    return mixed.reshape(kv_heads, n, -1, head_dim).transpose(1, 0, 2, 3).reshape(n, heads, head_dim)


def _visible(q_positions: Int32, k_positions: Int32, window: int | None) -> npt.NDArray[np.bool_]:
    """`[n, m]`: position p sees max(0, p - window + 1) .. p."""
    distance = q_positions[:, None] - k_positions[None, :]
    return distance >= 0 if window is None else (distance >= 0) & (distance < window)


def _softmax(scores: Float32) -> Float32:
    """Over the last axis; every row sees at least itself, so its maximum is finite."""
    weights: Float32 = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
