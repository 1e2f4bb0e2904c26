"""Cosines and sines of every position, computed once in float64: no kernel calls a C library whose bits may vary."""

import numpy as np

from octavo.execution.protocols import Float32
from octavo.model.program import RopeSpec


def rope_table(rope: RopeSpec, num_positions: int) -> Float32:
    """`[num_positions, rotary_dim]`: per position the cosines of all pairs, then their sines, times the magnitude."""
    angles = np.arange(num_positions, dtype=np.float64)[:, None] * np.array(rope.inv_freq, np.float64)
    turns = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * rope.magnitude
    return turns.astype(np.float32)
