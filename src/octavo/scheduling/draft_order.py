"""In which order drafts are worth trying, and what is expected of the first so many of them."""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from math import sqrt
from typing import NamedTuple

from octavo.scheduling.acceptance import Chances


class Expectation(NamedTuple):
    """What comes of a step with some drafts planned. How many run is not known ahead, as proposers may have nothing: it
    is told by two numbers and the chance of the greater one, such that mean, variance and skewness are right (the nodes
    of Gauss' quadrature; exact for one request with a draft of one length)."""

    place: int
    """Of the candidate that has the last of these drafts."""
    tokens: float
    low: float
    high: float
    chance: float

    def time(self, times: Sequence[float]) -> float:
        """Mean of a time by the number of drafts that run."""
        high = _at(times, self.high)
        return high if self.chance == 1.0 else self.chance * high + (1.0 - self.chance) * _at(times, self.low)


def _at(times: Sequence[float], drafts: float) -> float:
    """Between two whole numbers a straight line."""
    low = int(drafts)
    first = times[low]
    return first if drafts == low else first + (drafts - low) * (times[low + 1] - first)


class _Chain:
    """The drafts of one candidate, one behind the other, and the moments of how many of those planned run."""

    __slots__ = (
        "_chances",
        "_second",
        "_third",
        "count",
        "key",
        "mean",
        "most",
        "place",
        "rows",
        "skew",
        "tokens",
        "variance",
    )

    def __init__(self, place: int, most: int, chances: Chances) -> None:
        self.place = place
        self.most = most
        self.tokens = chances.first_right
        self.rows = max(chances.first_runs, chances.first_right)
        self.key = -self.tokens / self.rows
        self.count = 0
        self.mean = self.variance = self.skew = self._second = self._third = 0.0
        self._chances = chances

    def __lt__(self, other: "_Chain") -> bool:
        return (self.key, self.place) < (other.key, other.place)

    def plan(self) -> None:
        """Takes the next draft in, which runs with chance `rows` and is right with chance `tokens`."""
        self.count = count = self.count + 1
        rows = self.rows
        self.mean = mean = self.mean + rows
        self._second += (2 * count - 1) * rows
        self._third += (3 * count * (count - 1) + 1) * rows
        self.variance = self._second - mean * mean
        self.skew = self._third - 3 * mean * self._second + 2 * mean * mean * mean
        self.tokens *= self._chances.next_right
        self.rows = max(rows * self._chances.next_runs, self.tokens)
        self.key = max(self.key, -self.tokens / self.rows)


def in_order(
    num_requests: int, budget: int, candidates: Sequence[tuple[int, Chances]], least_right: float
) -> Iterator[Expectation]:
    """Expectations of a step with one draft, two, ..., those first of which most is expected per row that runs.

    Args:
        candidates: most drafts and chances of each.
        least_right: where less is expected of the next draft, per row, the order ends.
    """
    heap: list[_Chain] = []
    for place, (most, chances) in enumerate(candidates):
        heappush(heap, _Chain(place, most, chances))
    tokens, mean, variance, skew = float(num_requests), 0.0, 0.0, 0.0
    for count in range(1, budget + 1):
        if not heap:
            return
        chain = heap[0]
        if -chain.key < least_right:
            return
        tokens += chain.tokens
        mean, variance, skew = mean - chain.mean, variance - chain.variance, skew - chain.skew
        chain.plan()
        mean, variance, skew = mean + chain.mean, variance + chain.variance, skew + chain.skew
        if chain.count < chain.most:
            heapreplace(heap, chain)
        else:
            heappop(heap)
        yield Expectation(chain.place, tokens, *_two_points(mean, variance, skew, count))


def _two_points(mean: float, variance: float, skew: float, most: int) -> tuple[float, float, float]:
    if variance < 1e-6:
        return mean, mean, 1.0
    deviation = sqrt(variance)
    half = skew / (2 * variance * deviation)
    root = sqrt(1 + half * half)
    low, high = mean + deviation * (half - root), mean + deviation * (half + root)
    return max(0.0, low), min(float(most), high), 0.5 * (1 - half / root)
