"""One cell of the parity matrix: how far the engine's logprobs lie from transformers'."""

from collections.abc import Sequence

import numpy as np

from tests.models.oracle import Oracle
from tests.models.paths import Scored

BOUND = 5e-4
"""Most that a logprob may be off: float32 sums in other orders, over a few layers."""


def max_error(oracle: Oracle, sequences: Sequence[Scored]) -> float:
    """The largest difference of a logprob, over all sequences, positions and tokens that the engine has scored."""
    return max(_error(oracle, sequence) for sequence in sequences)


def _error(oracle: Oracle, scored: Scored) -> float:
    expected = oracle.logprobs(scored.token_ids)
    worst = 0.0
    for index, row in scored.rows.items():
        assert row.token_ids[0] == scored.token_ids[index]
        worst = max(worst, float(np.abs(expected[index - 1][row.token_ids] - np.array(row.logprobs)).max()))
    return worst
