"""When dialogues begin: a process of unit rate, then a change of time that gives it a rate, or a rate that moves."""

import math
from collections.abc import Callable
from itertools import accumulate
from random import Random

Pace = Callable[[float], float]
"""Arrivals so far -> seconds since the start: the inverse of the integral of the rate."""


def unit_times(count: int, burstiness: float, seed: int) -> list[float]:
    """Arrivals at one a second; the first comes after a gap, and the last at exactly `count` seconds, so that the rate
    is exact and not only expected. (A Poisson process of which the number of arrivals is known is no other: its points
    are those of evenly drawn ones.)

    Args:
        burstiness: shape of the gamma distribution of the gaps, whose coefficient of variation is its root's inverse.
            1: Poisson; below: bursts; above: more even; infinite: constant gaps.
    """
    if math.isinf(burstiness):
        return [float(number) for number in range(1, count + 1)]
    draw = Random(f"arrivals {seed}")
    times = list(accumulate(draw.gammavariate(burstiness, 1.0) for _ in range(count)))
    return [count * (time / times[-1]) for time in times]


def steady(rate: float) -> Pace:
    """`rate` a second; infinite: all at once."""
    return lambda arrivals: arrivals / rate


def linear_ramp(count: int, start: float, end: float) -> Pace:
    """A rate that moves evenly in time from `start` to `end`, where it is after `count` arrivals.

    With slope k = (end^2 - start^2) / 2 count there are start t + k t^2 / 2 arrivals by t; solved for t in the form
    that does not cancel for k near 0.
    """
    slope = (end * end - start * start) / (2 * count)
    return lambda arrivals: 2 * arrivals / (start + math.sqrt(start * start + 2 * slope * arrivals))


def exponential_ramp(count: int, start: float, end: float) -> Pace:
    """A rate that grows (or falls) by the same factor each second from `start` to `end`, where it is after `count`
    arrivals: by t there are start (e^(g t) - 1) / g, with g = (end - start) / count."""
    growth = (end - start) / count
    if growth == 0:
        return steady(start)
    return lambda arrivals: math.log1p(growth * arrivals / start) / growth


RAMPS = {"linear": linear_ramp, "exponential": exponential_ramp}


def recorded(times: list[float], scale: float) -> list[float]:
    """Times of a trace from its first on, stretched by `scale`."""
    first = min(times, default=0.0)
    return [(time - first) * scale for time in times]
