"""Goodput: how many answers were as quick as their class of requests was promised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter

from octavo.request.slo import Promise


@dataclass(frozen=True)
class Latencies:
    """Of one answer, in seconds; None: it has no such thing, which breaks no promise."""

    ttft: float | None
    tpot: float | None
    itl: float | None
    """The longest gap between two pieces."""
    e2el: float

    def missed(self, promise: Promise) -> list[str]:
        """Which limits it did not keep."""
        found = {"ttft": self.ttft, "tpot": self.tpot, "itl": self.itl, "e2el": self.e2el}
        return [name for name, limit in promise.limits.items() if (taken := found[name]) is not None and taken > limit]


class Promises:
    """Judges every answer by every promise."""

    def __init__(self, promises: Sequence[Promise], labels: Mapping[str, str], registry: CollectorRegistry) -> None:
        self._promises = promises
        self._labels = labels
        names = [*labels, "slo_class"]
        text = "Answers, and refusals by the engine, by whether they kept the limits of a class."
        self._judged = Counter("octavo:slo_requests", text, [*names, "outcome"], registry=registry)
        text = "Why answers did not: limits, or how they ended. One may miss several."
        self._misses = Counter("octavo:slo_misses", text, [*names, "reason"], registry=registry)
        for promise in promises:  # so that a rate over a first one is right
            for outcome in ("met", "missed"):
                self._judged.labels(**labels, slo_class=promise.name, outcome=outcome)

    def keep(self, latencies: Latencies) -> None:
        """An answer has come to an end of its own."""
        for promise in self._promises:
            self._judge(promise, latencies.missed(promise))

    def break_all(self, reason: str, count: int = 1) -> None:
        """So many answers were rejected, were aborted or failed."""
        for promise in self._promises:
            for _ in range(count):
                self._judge(promise, [reason])

    def _judge(self, promise: Promise, missed: Sequence[str]) -> None:
        named = {**self._labels, "slo_class": promise.name}
        self._judged.labels(**named, outcome="missed" if missed else "met").inc()
        for reason in missed:
            self._misses.labels(**named, reason=reason).inc()
