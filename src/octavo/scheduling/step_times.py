"""How much longer a step takes for its drafts: learned from the steps that ran."""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt

UNKNOWN = 1e9
"""Relative time of what has never been tried, nor anything beyond it."""
SLOW = 1 / 32
"""Share of a new time in what is known of a size, once it is well known."""
NEW_LEVEL = 0.03
"""Share of a new time in the level. Less than in sizes that are hardly known: what is wrong there must not move it."""
KNOWN = 16
"""Times after which a size is known well enough for that."""
SURPRISE = 0.25
"""Most that one time counts for, as a logarithm, where it is unlike what is known: the machine was busy with others."""
STALE = 4096
"""Steps after which a size that has not run is forgotten, and may be tried anew."""
LINE = 2.0
"""Times of one size for which a straight line through those of all sizes counts."""
REACH = 4
"""How many drafts beyond the most that have run may be hoped for, at least."""


@dataclass
class _Size:
    """What is known of steps with one number of drafts: logarithm of the time behind the level."""

    shape: float
    count: int
    last: int


class StepTimes:
    """Relative times of steps by the number of drafts that ran, 1 being about a step without any.

    log(time) = level + shape(number of drafts). The level follows all that makes every step slower: longer contexts, a
    busy machine. Shapes of sizes that have hardly run are drawn to a straight line through all; none falls: they are
    joined by isotonic regression (pool adjacent violators), weighted by how often a size has run. So few samples of
    each size are enough, and one that was disturbed stands alone against its neighbours.
    """

    def __init__(self, num_requests: int, most: int) -> None:
        """
        Args:
            num_requests: about as many as the steps have: rows without drafts.
            most: drafts of a step.
        """
        self._num_requests = num_requests
        self.most = most
        self._sizes: dict[int, _Size] = {}
        self._level = 0.0
        self._noise = 0.05
        self._step = 0
        self._is_new = True
        self._num_known = 0
        """Numbers of drafts up to the most that have run, none included."""
        self.least_rise = 0.0
        self._sure: list[float] = []
        self._hopeful: list[float] = []

    def add(self, num_drafts: int, seconds: float) -> None:
        """Takes note of a step."""
        self._step += 1
        here = log(max(seconds, 1e-9))
        if not self._sizes:
            self._level = here
        here -= self._level
        known = self._sizes.get(num_drafts)
        if known is None:
            self._sizes[num_drafts] = _Size(here, 1, self._step)
            self._is_new = True
            return
        self._learn(known, here)
        if known.count <= 2 or self._step % 16 == 0:
            self._is_new = True
        if self._step % 256 == 0:
            self._forget()

    def _learn(self, known: _Size, here: float) -> None:
        known.last = self._step
        known.count += 1
        off = here - known.shape
        if known.count == 2 and abs(off) > 2 * SURPRISE:
            known.shape = min(here, known.shape)
            return
        off = max(-SURPRISE, min(SURPRISE, off))
        known.shape += max(SLOW, 1 / known.count) * off
        if known.count > KNOWN:
            self._level += NEW_LEVEL * off
            self._noise += NEW_LEVEL * (abs(off) - self._noise)

    def _forget(self) -> None:
        old = [size for size, known in self._sizes.items() if size and self._step - known.last > STALE]
        for size in old:
            del self._sizes[size]

    def num_times(self, num_drafts: int) -> int:
        """How often a size has run, as far as is known."""
        known = self._sizes.get(num_drafts)
        return 0 if known is None else known.count

    @property
    def is_known(self) -> bool:
        """Whether steps with drafts have run often enough for what these take to be more than a guess."""
        return self._step - self.num_times(0) >= KNOWN

    def age(self, num_drafts: int) -> int:
        """Steps since a size ran, of those that have."""
        return self._step - self._sizes[num_drafts].last

    def seconds_per_draft(self) -> float | None:
        """By how much longer a step takes for each draft, over those that have run; None: hardly any have."""
        self._refresh()
        last = max((size for size, known in self._sizes.items() if known.count > 1), default=0)
        return exp(self._level) * self.rise(last) if last else None

    def rise(self, num_drafts: int) -> float:
        """Relative time of each of so many drafts, or of as many as have run."""
        times = self.sure()
        last = min(num_drafts, self._num_known - 1)
        return (times[last] - times[0]) / last if last else 0.0

    def expect_rise(self, seconds: float) -> None:
        """Lets nobody hope that a draft takes less than that."""
        self.least_rise = self.relative(seconds)
        self._is_new = True

    def relative(self, seconds: float) -> float:
        """A time in those of this class."""
        return seconds / exp(self._level)

    def doubt(self) -> float:
        """By how much, relatively, the time of a step without drafts may be wrong."""
        return self._noise / sqrt(min(32, self.num_times(0)))

    def sure(self) -> list[float]:
        """[number of drafts] -> relative time, linear between sizes that have run, `UNKNOWN` beyond them."""
        self._refresh()
        return self._sure

    def hopeful(self) -> list[float]:
        """The same for the best that can be hoped of sizes which have not run twice: that they take hardly longer than
        the next smaller one, up to half way to the next greater one, or for some way beyond the greatest one."""
        self._refresh()
        return self._hopeful

    def _refresh(self) -> None:
        if self._is_new:
            self._is_new = False
            curve = self._joined()
            self._sure = self._between(curve)
            self._hopeful = self._hoped(curve)

    def _joined(self) -> list[tuple[int, float]]:
        """(size, relative time), never falling."""
        pools: list[tuple[float, float, int]] = []
        sizes = sorted(self._sizes)
        for size, shape in zip(sizes, self._drawn_to_a_line(sizes), strict=True):
            weight, mean, width = float(min(self._sizes[size].count, 32)), shape, 1
            while pools and pools[-1][1] >= mean:
                other, value, more = pools.pop()
                mean = (mean * weight + value * other) / (weight + other)
                weight, width = weight + other, width + more
            pools.append((weight, mean, width))
        times = [exp(mean) for _, mean, width in pools for _ in range(width)]
        return list(zip(sizes, times, strict=True))

    def _drawn_to_a_line(self, sizes: list[int]) -> list[float]:
        """Logarithms of times, those of sizes that have hardly run nearer to a straight line through all of them."""
        first = exp(self._sizes[sizes[0]].shape)
        far, square = 0.0, 1e-9
        for size in sizes[1:]:
            known, further = self._sizes[size], size - sizes[0]
            weight = min(known.count, 8) * further
            far += weight * (exp(known.shape) - first)
            square += weight * further
        slope = max(0.0, far / square)
        shapes = [self._sizes[sizes[0]].shape]
        for size in sizes[1:]:
            known = self._sizes[size]
            line = log(first + slope * (size - sizes[0]))
            shapes.append((known.count * known.shape + LINE * line) / (known.count + LINE))
        return shapes

    def _between(self, curve: list[tuple[int, float]]) -> list[float]:
        times: list[float] = []
        for (low, first), (high, last) in pairwise(curve):
            slope = (last - first) / (high - low)
            times += [first + slope * step for step in range(high - low)]
        times.append(curve[-1][1])
        self._num_known = len(times)
        return times + [UNKNOWN] * (self.most + 1 - len(times))

    def _hoped(self, curve: list[tuple[int, float]]) -> list[float]:
        settled = [(size, seconds) for size, seconds in curve if self._sizes[size].count > 1]
        times = list(self._sure)
        if not settled:
            return times
        for size, seconds in settled:
            times[size] = seconds * (1 - self._noise / sqrt(self._sizes[size].count))
        for (low, first), (high, _) in pairwise(settled):
            half = low + (high - low) // 2
            times[low + 1 : half + 1] = self._rising(first, half - low, limit=times[high])
        last, seconds = settled[-1]
        reach = min(self.most, last + max(REACH, last + self._num_requests))
        times[last + 1 : reach + 1] = self._rising(seconds, reach - last)
        return times

    def _rising(self, first: float, count: int, limit: float = UNKNOWN) -> list[float]:
        return [min(limit, first + self.least_rise * step) for step in range(1, count + 1)]
