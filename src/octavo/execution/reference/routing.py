"""Which experts a row meets, as `octavo.model.program.Route` defines it."""

from collections.abc import Callable

import numpy as np

from octavo.execution.protocols import Float32, Int32
from octavo.model.program import Routing


def route(logits: Float32, top_k: int, routing: Routing) -> tuple[Int32, Float32]:
    """Ids and weights `[rows, top_k]` of the experts with the largest of `logits [rows, experts]`."""
    with np.errstate(invalid="ignore"):  # rows with NaN or infinity become NaN
        ids = np.argsort(-np.where(np.isnan(logits), np.inf, logits), axis=1, kind="stable")[:, :top_k]
        largest = np.take_along_axis(logits, ids[:, :1], axis=1)
        shares: Float32 = np.exp(logits - largest)
        chosen = np.take_along_axis(shares, ids, axis=1)
        weights: Float32 = chosen / _TOTALS[routing](shares, chosen)
    return ids.astype(np.int32), weights


def _total_of_all(shares: Float32, chosen: Float32) -> Float32:
    total: Float32 = shares.sum(axis=1, keepdims=True)
    return total


def _total_of_chosen(shares: Float32, chosen: Float32) -> Float32:
    total: Float32 = chosen.sum(axis=1, keepdims=True)
    return total


_TOTALS: dict[Routing, Callable[[Float32, Float32], Float32]] = {
    Routing.SHARE_OF_ALL: _total_of_all,
    Routing.SHARE_OF_CHOSEN: _total_of_chosen,
}
