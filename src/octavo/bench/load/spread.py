"""Many values in a few figures."""

from collections.abc import Sequence
from math import fsum

PERCENTILES = (50, 90, 95, 99)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, percentiles and the largest; of no values only `count`, which is 0."""
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    shown = {f"p{percent}": percentile(ordered, percent) for percent in PERCENTILES}
    return {"count": len(ordered), "mean": fsum(ordered) / len(ordered), **shown, "max": ordered[-1]}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks (Hyndman and Fan 1996, definition 7, NumPy's default).

    Args:
        ordered: at least one value, rising.
    """
    below, share = divmod((len(ordered) - 1) * percent, 100)
    low = ordered[int(below)]
    return low if share == 0 else low + (ordered[int(below) + 1] - low) * (share / 100)
