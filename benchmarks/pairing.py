"""The arithmetic of comparisons: figures of interleaved rounds, and ratios taken round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import TypeVar

T = TypeVar("T")
CONFIDENCE = 0.9


@dataclass(frozen=True)
class Estimate:
    """A median and how far it can be trusted."""

    median: float
    low: float
    high: float
    coverage: float
    """Chance that [low, high] holds the true median, whatever the distribution."""
    rounds: int


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Median with the narrowest interval of order statistics that holds the true median with `confidence`.

    The interval from the k-th smallest to the k-th largest of n values misses the true median only if fewer than k
    values fall on one side of it, so its coverage is 1 - 2 P(Binomial(n, 1/2) < k). With too few values for
    `confidence` the interval is the whole range; its smaller coverage is told.
    """
    ordered = sorted(values)
    count = len(ordered)
    rank = max([1, *(k for k in range(1, (count + 1) // 2 + 1) if coverage(count, k) >= confidence)])
    return Estimate(median(ordered), ordered[rank - 1], ordered[-rank], coverage(count, rank), count)


def coverage(count: int, rank: int) -> float:
    """Chance that the rank-th smallest and rank-th largest of `count` values enclose the true median."""
    outside = sum(comb(count, i) for i in range(rank)) / float(2**count)
    return max(0.0, 1 - 2 * outside)


def paired_ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float]:
    """Round by round; rounds in which one of the two is missing do not count."""
    return [a / b for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]


def rotated(items: Sequence[T], by: int) -> list[T]:
    """The items from another start, so that no engine always runs first."""
    start = by % len(items)
    return [*items[start:], *items[:start]]
