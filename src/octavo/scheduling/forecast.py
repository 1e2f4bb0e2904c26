"""How many blocks running requests will need at most, over the rest of their lives."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

_WINDOW = 256
_ENOUGH = 16
_PRIOR_TOKENS = 1024


class Life(NamedTuple):
    """What one request holds for itself, in blocks; shared blocks are counted elsewhere, and once."""

    remaining: int
    """Tokens it will yet generate, >= 1: as many steps until its blocks are free."""
    now: int
    """Blocks for all tokens known now, whether or not they are allocated yet."""
    end: int
    """Blocks at its last step."""


def peak_blocks(lives: Iterable[Life]) -> int:
    """The most blocks held at one time, if all advance by a token per step.

    The peak can only stand where a request ends. With requests sorted by what remains to them, longest first, those
    alive at the end of request i are the first i (the idea is LightLLM's):

        blocks at the end of i  =  sum over j <= i of  now_j + growth_j * remaining_i
    """
    peak = num_now = 0.0
    growth = 0.0
    for life in sorted(lives, reverse=True):
        num_now += life.now
        growth += (life.end - life.now) / life.remaining
        peak = max(peak, num_now + growth * life.remaining)
    return ceil(peak - 1e-9)


def reserved_blocks(lives: Iterable[Life]) -> int:
    """The blocks held if nobody ended before the others have reached their ends."""
    return sum(life.end for life in lives)


class OutputLengths:
    """How long answers are: the lengths of the last ones that ended by themselves.

    Deterministic, O(log n) to ask. Before enough have ended the guess is a share of what a request may generate.
    """

    def __init__(self, quantile: float) -> None:
        """
        Args:
            quantile: the part of answers, among those at least as long as a request's is now, that a guess covers.
        """
        self._quantile = quantile
        self._sorted: list[int] = []
        self._recent: deque[int] = deque()

    def learn(self, num_tokens: int) -> None:
        """An answer has ended with this many tokens."""
        if len(self._recent) == _WINDOW:
            del self._sorted[bisect_right(self._sorted, self._recent.popleft()) - 1]
        self._recent.append(num_tokens)
        insort(self._sorted, num_tokens)

    def remaining(self, num_generated: int, at_most: int) -> int:
        """Tokens that a request will yet generate: between 1 and `at_most`.

        An answer longer than all those seen is taken to be at its half.
        """
        if len(self._sorted) < _ENOUGH:
            return max(1, ceil(self._quantile * min(at_most, _PRIOR_TOKENS)))
        first = bisect_right(self._sorted, num_generated)
        num_longer = len(self._sorted) - first
        if num_longer == 0:
            return min(at_most, max(1, num_generated))
        index = first + min(num_longer - 1, int(self._quantile * num_longer))
        return min(at_most, self._sorted[index] - num_generated)
