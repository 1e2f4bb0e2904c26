"""Goodput: how many requests were served as promised. Rejected, failed and abandoned ones were not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.load.exchange import Exchange, Outcome
from octavo.bench.load.latencies import Latency, e2el, longest_gap, tpot, ttft
from octavo.request.slo import Promise, read_promise

METRICS: dict[str, Latency] = {"ttft": ttft, "tpot": tpot, "itl": longest_gap, "e2el": e2el}
"""What can be promised; counted from when the request should have been sent. `itl` is the longest stall."""


@dataclass(frozen=True)
class SloClass(Promise):
    """A promise, and how it is kept."""

    def missed(self, exchange: Exchange) -> list[str]:
        """What a request missed: metrics, or how it ended. A latency that it does not have (a gap, in an answer of one
        token) misses nothing."""
        if exchange.answer.outcome is not Outcome.COMPLETED:
            return [exchange.answer.outcome.value]
        found = {metric: METRICS[metric](exchange) for metric in self.limits}
        return [metric for metric, value in found.items() if value is not None and value > self.limits[metric]]

    def judges(self, exchange: Exchange) -> bool:
        """Whether a request is of this class, or of none."""
        return exchange.slo is None or exchange.slo == self.name


def parse_slo_class(text: str) -> SloClass:
    """Reads `ttft:300 tpot:60` or `NAME=ttft:300,tpot:60`; milliseconds.

    Raises:
        ConfigError: it reads otherwise.
    """
    promise = read_promise(text)
    return SloClass(promise.name, promise.limits)


def goodput(exchanges: Sequence[Exchange], slo: SloClass, duration_s: float) -> dict[str, Any]:
    """Of the requests that a class judges: how many were served as promised, which share, how many a second, and how
    often what was missed."""
    misses = [slo.missed(exchange) for exchange in exchanges if slo.judges(exchange)]
    met = sum(not missed for missed in misses)
    kinds = sorted({kind for missed in misses for kind in missed})
    return {
        "limits_s": slo.limits,
        "requests": len(misses),
        "met": met,
        "share": met / len(misses) if misses else None,
        "requests_per_s": met / duration_s if duration_s else None,
        "missed_by": {kind: sum(kind in missed for missed in misses) for kind in kinds},
    }
