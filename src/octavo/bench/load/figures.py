"""From what came of every request to what a run is worth."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from octavo.bench.load.exchange import Exchange, Outcome
from octavo.bench.load.goodput import SloClass, goodput
from octavo.bench.load.latencies import (
    Latency,
    e2el,
    e2el_from_send,
    gaps,
    send_delay,
    tpot,
    ttft,
    ttft_from_send,
)
from octavo.bench.load.spread import spread
from octavo.bench.load.window import Window, most_under_way

LATENCIES: dict[str, Latency] = {
    "ttft_s": ttft,
    "tpot_s": tpot,
    "e2el_s": e2el,
    "ttft_from_send_s": ttft_from_send,
    "e2el_from_send_s": e2el_from_send,
    "send_delay_s": send_delay,
}


def run_figures(exchanges: Sequence[Exchange], window: Window, slos: Sequence[SloClass] = ()) -> dict[str, Any]:
    """All figures of a window. Latencies are of completed requests alone; how many were not stands beside them."""
    counted = [exchange for exchange in exchanges if window.holds(exchange.intended_s)]
    completed = [exchange for exchange in counted if exchange.answer.outcome is Outcome.COMPLETED]
    outcomes = Counter(exchange.answer.outcome for exchange in counted)
    return {
        "window": {"begin_s": window.begin_s, "end_s": window.end_s, "duration_s": window.duration_s},
        "requests": len(counted),
        **{outcome.value: outcomes[outcome] for outcome in Outcome},
        "errors": _reasons(counted),
        **_rates(exchanges, window),
        **_tokens(completed),
        "most_under_way": most_under_way(counted),
        **{name: spread(_present(latency, completed)) for name, latency in LATENCIES.items()},
        "itl_s": spread([gap for exchange in completed for gap in gaps(exchange)]),
        "goodput": {slo.name: goodput(counted, slo, window.duration_s) for slo in slos},
    }


def attained_rate(exchanges: Sequence[Exchange]) -> float | None:
    """Requests a second from the run's beginning until the last was sent. None: all were sent at once."""
    last_s = max((exchange.answer.sent_s for exchange in exchanges), default=0.0)
    return len(exchanges) / last_s if last_s > 0 else None


def _rates(exchanges: Sequence[Exchange], window: Window) -> dict[str, Any]:
    """What happened within the window, whoever's it was."""
    if not window.duration_s:
        return {}
    sent = sum(window.holds(exchange.answer.sent_s) for exchange in exchanges)
    completed = [exchange for exchange in exchanges if exchange.answer.outcome is Outcome.COMPLETED]
    ended = sum(window.holds(exchange.answer.ended_s) for exchange in completed)
    generated = sum(_tokens_within(exchange, window) for exchange in exchanges)
    read = sum(exchange.answer.prompt_tokens or 0 for exchange in exchanges if _first_within(exchange, window))
    return {
        "sent_per_s": sent / window.duration_s,
        "completed_per_s": ended / window.duration_s,
        "output_tokens_per_s": generated / window.duration_s,
        "total_tokens_per_s": (generated + read) / window.duration_s,
    }


def _tokens_within(exchange: Exchange, window: Window) -> float:
    """Tokens that came within. Which chunk carried how many is not told, so each counts as an equal share."""
    chunks = exchange.answer.came_s
    within = bisect_right(chunks, window.end_s) - bisect_left(chunks, window.begin_s)
    return exchange.output_tokens * within / len(chunks) if chunks else 0.0


def _first_within(exchange: Exchange, window: Window) -> bool:
    first = exchange.answer.came_s[:1]
    return bool(first) and window.holds(first[0])


def _tokens(completed: Sequence[Exchange]) -> dict[str, Any]:
    """Of completed requests, by the server's count where it has one."""
    prompts = [exchange.answer.prompt_tokens for exchange in completed if exchange.answer.prompt_tokens is not None]
    cached = [exchange.answer.cached_tokens for exchange in completed if exchange.answer.cached_tokens is not None]
    return {
        "prompt_tokens": sum(prompts),
        "cached_tokens": sum(cached) if cached else None,
        "output_tokens": sum(exchange.output_tokens for exchange in completed),
        "answers_without_usage": sum(exchange.answer.output_tokens is None for exchange in completed),
        "answers_with_odd_usage": sum(map(has_odd_usage, completed)),
        "asked_prompt_tokens": _asked([exchange.input_len for exchange in completed]),
        "asked_output_tokens": _asked([exchange.output_len for exchange in completed]),
    }


def has_odd_usage(exchange: Exchange) -> bool:
    """Whether the server counts more tokens than it was asked for at most, or none of an answer that is not empty: then
    nothing that is counted in tokens is to be trusted."""
    counted, asked = exchange.answer.output_tokens, exchange.output_len
    if counted is None:
        return False
    return (counted == 0 and bool(exchange.answer.chunk_s)) or (asked is not None and counted > asked)


def _asked(lengths: Sequence[int | None]) -> int | None:
    """None: of some the data set does not know it (texts of a file, later turns), so a sum would be too small."""
    known = [length for length in lengths if length is not None]
    return sum(known) if len(known) == len(lengths) else None


def _reasons(exchanges: Sequence[Exchange]) -> dict[str, int]:
    """What went wrong, most frequent first."""
    reasons = Counter(exchange.answer.error for exchange in exchanges)
    return {reason: count for reason, count in reasons.most_common() if reason is not None}


def _present(latency: Latency, exchanges: Sequence[Exchange]) -> list[float]:
    return [value for exchange in exchanges if (value := latency(exchange)) is not None]
