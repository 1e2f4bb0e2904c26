"""How often values have fallen into which range: a histogram as plain data."""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec


class Tally(msgspec.Struct):
    """Counts since the start. One owner adds to it; others get copies."""

    bounds: list[float]
    """Upper bounds of the ranges, ascending, each included."""
    counts: list[int]
    """One per range, and one more for what lies above them all."""
    total: float = 0.0
    """Sum of all values."""

    def add(self, value: float, times: int = 1) -> None:
        """Counts a value, `times` over."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> "Tally":
        """As it is now."""
        return Tally(self.bounds, self.counts.copy(), self.total)


def tally(bounds: Sequence[float]) -> Tally:
    """An empty one."""
    return Tally([*map(float, bounds)], [0] * (len(bounds) + 1))
