"""Latencies of one request, in seconds. Each that starts with the request exists twice: from when it should have been
sent, and from when it was. The first is what a user feels; the second alone leaves out the waiting of those requests
that a slow server kept from being sent (coordinated omission)."""

from collections.abc import Callable
from itertools import pairwise

from octavo.bench.load.exchange import Exchange

Latency = Callable[[Exchange], float | None]
"""None: the request has none."""


def ttft(exchange: Exchange) -> float | None:
    """To the first chunk with something of the answer in it; a role alone is not."""
    first = exchange.answer.chunk_s[:1]
    return first[0] - exchange.intended_s if first else None


def ttft_from_send(exchange: Exchange) -> float | None:
    """`ttft` without the wait before the request was sent."""
    first = exchange.answer.chunk_s[:1]
    return first[0] - exchange.answer.sent_s if first else None


def e2el(exchange: Exchange) -> float:
    """To the last chunk."""
    return exchange.answer.ended_s - exchange.intended_s


def e2el_from_send(exchange: Exchange) -> float:
    """`e2el` without the wait before the request was sent."""
    return exchange.answer.ended_s - exchange.answer.sent_s


def tpot(exchange: Exchange) -> float | None:
    """Time per output token after the first: from the first chunk to the last, over one token fewer than there are."""
    chunks, tokens = exchange.answer.chunk_s, exchange.output_tokens
    return (chunks[-1] - chunks[0]) / (tokens - 1) if chunks and tokens > 1 else None


def gaps(exchange: Exchange) -> list[float]:
    """From chunk to chunk. A chunk may carry several tokens, so a mean of these is no `tpot`."""
    return [later - earlier for earlier, later in pairwise(exchange.answer.chunk_s)]


def longest_gap(exchange: Exchange) -> float | None:
    """The worst stall inside an answer."""
    return max(gaps(exchange), default=None)


def send_delay(exchange: Exchange) -> float:
    """From when it should have been sent to when it was: waiting for a slot, and what the client itself is late."""
    return exchange.answer.sent_s - exchange.intended_s
