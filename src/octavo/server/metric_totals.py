"""What the API processes of a server have counted, each for itself, and the sum of it.

Every process keeps its counters, histograms and gauges in a registry of its own; whoever is asked for /metrics gathers
them as plain data and adds them up. Prometheus' own way (files that all processes map, named by an environment
variable) costs a system call's worth of work at each count, leaves files behind, and cannot add up a gauge without
being told how; here nothing is paid until somebody asks.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry


class Figures(msgspec.Struct, frozen=True, array_like=True):
    """One family of metrics."""

    name: str
    kind: str
    """Prometheus' type: counter, gauge, histogram."""
    text: str
    samples: list[tuple[str, dict[str, str], float]]
    """Name, labels, value."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Figures]).decode


def snapshot(registry: CollectorRegistry) -> list[Figures]:
    """All that a registry holds, as it is now."""
    return [
        Figures(
            family.name,
            family.type,
            family.documentation,
            [(sample.name, dict(sample.labels), sample.value) for sample in family.samples],
        )
        for family in registry.collect()
    ]


def encode(figures: Sequence[Figures]) -> bytes:
    """For the way to another process."""
    return _encode(figures)


def decode(payload: bytes) -> list[Figures]:
    """Reads what `encode` wrote."""
    return _decode(payload)


def added_up(snapshots: Iterable[Sequence[Figures]]) -> list[Figures]:
    """One snapshot of all processes: equal samples are added; of times of creation the earliest is kept."""
    families: dict[str, Figures] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for figures in snapshots:
        for family in figures:
            families.setdefault(family.name, family)
            totals = values.setdefault(family.name, {})
            for name, labels, value in family.samples:
                key = (name, tuple(sorted(labels.items())))
                known = totals.get(key)
                totals[key] = value if known is None else _joined(name, known, value)
    return [
        Figures(name, family.kind, family.text, [(sample, dict(labels), value) for (sample, labels), value in totals])
        for name, family in families.items()
        for totals in [values[name].items()]
    ]


def _joined(name: str, one: float, other: float) -> float:
    return min(one, other) if name.endswith("_created") else one + other


class Exposition:
    """Figures of all processes beside collectors that are asked here alone, in the form that Prometheus' text writer
    takes."""

    def __init__(self, totals: Sequence[Figures], *collectors: Collector) -> None:
        self._totals = totals
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client."""
        for collector in self._collectors:
            yield from collector.collect()
        for family in self._totals:
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric
