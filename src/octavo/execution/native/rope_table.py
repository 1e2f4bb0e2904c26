"""Cosines and sines of every position, computed once in float64: no kernel calls a C library whose bits may vary."""

import numpy as np

from octavo.execution.protocols import Float32
from octavo.model.program import RopeSpec

_STRIDE = 256
"""Positions per run of the table; a run of angles stays in the cache."""


def rope_table(rope: RopeSpec, num_positions: int) -> Float32:
    """`[num_positions, rotary_dim]`: per position the cosines of all pairs, then their sines, times the magnitude.

    A position is a multiple of the stride and a rest, and the angle of a sum comes from the angles of its parts
    (cos(a + b) = cos a cos b - sin a sin b, in float64, an error far below float32's): a long context asks for a
    thousand cosines instead of millions, which took a third of the start of models with two tables.
    """
    frequencies, half = np.array(rope.inv_freq, np.float64), len(rope.inv_freq)
    starts = np.arange(0, num_positions, _STRIDE, dtype=np.float64)[:, None] * frequencies
    rests = np.arange(_STRIDE, dtype=np.float64)[:, None] * frequencies
    cos_rest, sin_rest = np.cos(rests) * rope.magnitude, np.sin(rests) * rope.magnitude
    table = np.empty((len(starts), _STRIDE, 2 * half), np.float32)
    for run, cos_start, sin_start in zip(table, np.cos(starts), np.sin(starts), strict=True):
        run[:, :half] = cos_start * cos_rest - sin_start * sin_rest
        run[:, half:] = sin_start * cos_rest + cos_start * sin_rest
    return table.reshape(-1, 2 * half)[:num_positions]
