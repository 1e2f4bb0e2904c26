"""A histogram that is cheap to add to, for what happens with every token.

Prometheus' own one takes two locks and looks at its buckets one after the other; here the event loop's thread alone
adds.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString


class QuickHistogram(Collector):
    """One histogram with fixed labels. For one thread."""

    def __init__(
        self, name: str, text: str, labels: Mapping[str, str], buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """
        Args:
            buckets: upper bounds, ascending, each included; what lies above them all is counted, too.
        """
        self._name, self._text, self._labels = name, text, labels
        self._bounds = [*map(float, buckets)]
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Counts one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client at each scrape."""
        family = HistogramMetricFamily(self._name, self._text, labels=[*self._labels])
        below, buckets = 0, []
        for bound, count in zip([*self._bounds, inf], self._counts, strict=True):
            below += count
            buckets.append((floatToGoString(bound), below))  # type: ignore[no-untyped-call]
        family.add_metric([*self._labels.values()], buckets, self._sum)
        yield family
