"""Which part of a run counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.bench.load.exchange import Exchange


@dataclass(frozen=True)
class Window:
    """From `begin_s` to `end_s` of a run, both included. Requests count that should have been sent within, and tokens
    that came within."""

    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Its length."""
        return self.end_s - self.begin_s

    def holds(self, time_s: float) -> bool:
        """Whether a time lies in it."""
        return self.begin_s <= time_s <= self.end_s


def whole_run(exchanges: Sequence[Exchange]) -> Window:
    """From the beginning until the last answer has ended."""
    return Window(0.0, max((exchange.answer.ended_s for exchange in exchanges), default=0.0))


def steady_state(exchanges: Sequence[Exchange]) -> Window | None:
    """From when as many requests have ended as were ever under way at one time, so that the server's first fill is
    over, until the last one should have been sent, after which the load only falls. None: that is never, the run was
    too short."""
    if not exchanges:
        return None
    ends = sorted(exchange.answer.ended_s for exchange in exchanges)
    begin_s = ends[most_under_way(exchanges) - 1]
    end_s = max(exchange.intended_s for exchange in exchanges)
    return Window(begin_s, end_s) if begin_s < end_s else None


def trimmed(window: Window, warm_up_s: float, cool_down_s: float) -> Window | None:
    """Without the first and the last seconds. None: nothing is left."""
    begin_s, end_s = window.begin_s + warm_up_s, window.end_s - cool_down_s
    return Window(begin_s, end_s) if begin_s < end_s else None


def most_under_way(exchanges: Sequence[Exchange]) -> int:
    """Requests under way at one time at most. One that ends when another is sent is not under way beside it."""
    changes = sorted(
        [(exchange.answer.sent_s, 1) for exchange in exchanges]
        + [(exchange.answer.ended_s, -1) for exchange in exchanges]
    )
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
