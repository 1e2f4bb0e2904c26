"""Samplers on every path, and logits that make borders and ties likely."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from octavo._native import available_isas
from octavo.decoding.sampler import NativeSampler

Float32 = npt.NDArray[np.float32]
MakeSampler = Callable[..., NativeSampler]


ISAS = available_isas()


def random_logits(rng: np.random.Generator, rows: int, vocab: int, kind: str) -> Float32:
    """Rows of one kind: `normal` (like a model's), `ties` (few distinct values), `flat` (nearly equal), `wide` (extreme
    scales), `holes` (half of them -inf), `peaked` (one certain token), `equal`."""
    x = rng.standard_normal((rows, vocab)) * 3
    if kind == "ties":
        x = np.round(x)
    elif kind == "flat":
        x *= 1e-6
    elif kind == "wide":
        x = np.sign(x) * 10 ** (rng.uniform(-30, 30, x.shape))
    elif kind == "holes":
        x[rng.random(x.shape) < 0.5] = -np.inf
        x[:, 0] = 0
    elif kind == "peaked":
        x[np.arange(rows), rng.integers(0, vocab, rows)] += 60
    elif kind == "equal":
        x[:] = -1.5
    return x.astype(np.float32)


KINDS = ["normal", "ties", "flat", "wide", "holes", "peaked", "equal"]
