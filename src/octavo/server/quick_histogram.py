"""A histogram that is cheap to add to, for what happens with every token.

Prometheus' own one takes two locks and looks at its buckets one after the other; here the event loop's thread alone
adds.
"""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from octavo.request.tally import tally
from octavo.server.engine_figures import cumulated


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
        self._counted = tally(buckets)
        self.observe = self._counted.add
        """Counts a value, once or as often as told."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client at each scrape."""
        family = HistogramMetricFamily(self._name, self._text, labels=[*self._labels])
        counted = self._counted
        family.add_metric([*self._labels.values()], cumulated(counted.bounds, counted.counts), counted.total)
        yield family
