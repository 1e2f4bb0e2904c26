"""Goodput: how many requests were served as promised. Rejected, failed and abandoned ones were not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.load.exchange import Exchange, Outcome
from octavo.bench.load.latencies import Latency, e2el, longest_gap, tpot, ttft
from octavo.errors import ConfigError

METRICS: dict[str, Latency] = {"ttft": ttft, "tpot": tpot, "itl": longest_gap, "e2el": e2el}
"""What can be promised; counted from when the request should have been sent. `itl` is the longest stall."""
UNNAMED = "default"


@dataclass(frozen=True)
class SloClass:
    """A promise: metric -> seconds at most."""

    name: str
    limits: dict[str, float]

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
    name, equals, limits = text.rpartition("=")
    read = dict(_limit(text, word) for word in limits.replace(",", " ").split())
    if not read or (equals and not name.strip()):
        raise _unreadable(text)
    return SloClass(name.strip() or UNNAMED, read)


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


def _limit(text: str, word: str) -> tuple[str, float]:
    metric, _, milliseconds = word.partition(":")
    try:
        limit_s = float(milliseconds) / 1000
    except ValueError:
        raise _unreadable(text) from None
    if metric not in METRICS or not limit_s >= 0:
        raise _unreadable(text)
    return metric, limit_s


def _unreadable(text: str) -> ConfigError:
    problem = f"write limits in milliseconds, like 'ttft:300 tpot:60' or 'chat=ttft:300'; known: {', '.join(METRICS)}"
    return ConfigError("goodput", text, problem)
