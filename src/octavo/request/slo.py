"""What users are promised: limits of the latencies of a class of requests, as they are written in settings."""

from dataclasses import dataclass

from octavo.errors import ConfigError

LATENCIES = ("ttft", "tpot", "itl", "e2el")
"""What can be promised: time to first token; time per token behind it, on average; the longest gap between two; time to
the end."""
UNNAMED = "default"


@dataclass(frozen=True)
class Promise:
    """One class of requests."""

    name: str
    limits: dict[str, float]
    """Latency -> seconds at most."""


def read_promise(text: str, field: str = "goodput") -> Promise:
    """Reads `ttft:300 tpot:60` or `NAME=ttft:300,tpot:60`; milliseconds.

    Args:
        field: the setting that holds the text.

    Raises:
        ConfigError: it reads otherwise.
    """
    name, equals, limits = text.rpartition("=")
    read = [_limit(word) for word in limits.replace(",", " ").split()]
    known = dict(limit for limit in read if limit is not None)
    if not read or None in read or (equals and not name.strip()):
        problem = "write limits in milliseconds, like 'ttft:300 tpot:60' or 'chat=ttft:300'; known: "
        raise ConfigError(field, text, problem + ", ".join(LATENCIES))
    return Promise(name.strip() or UNNAMED, known)


def _limit(word: str) -> tuple[str, float] | None:
    latency, _, milliseconds = word.partition(":")
    try:
        limit_s = float(milliseconds) / 1000
    except ValueError:
        return None
    return (latency, limit_s) if latency in LATENCIES and limit_s > 0 else None
