"""How long things take, foretold from how long they took: loads from a tier, and computing tokens."""

FORGET_S = 60.0
"""After so long without a measurement nothing is known any more. A tier that was slow once gets its next chance."""
_KEEP = 0.8
"""Weight of all that was measured before, against that of the newest."""
_MIN_TOKENS_PER_REQUEST = 8
"""Steps with fewer are mostly decodes, whose time is that of reading weights and not that of tokens."""
_MIN_TOKENS = 32


class LoadSpeed:
    """Of one tier: `seconds = latency + bytes / bandwidth`, both as moving averages."""

    def __init__(self) -> None:
        self._bytes = self._seconds = 0.0
        self._latency_s = 0.0
        self._measured_s: float | None = None

    def measured(self, num_bytes: int, seconds: float, ahead_bytes: int, passed_s: float, now_s: float) -> None:
        """A load has ended.

        Args:
            seconds: spent on its bytes.
            ahead_bytes: that were to be moved before them when it was planned.
            passed_s: from its plan to its end.
        """
        if num_bytes <= 0 or seconds <= 0:
            return
        known = self._known(now_s)
        self._bytes = num_bytes + (_KEEP * self._bytes if known else 0.0)
        self._seconds = seconds + (_KEEP * self._seconds if known else 0.0)
        latency_s = max(0.0, passed_s - (ahead_bytes + num_bytes) * self._seconds / self._bytes)
        self._latency_s = _KEEP * self._latency_s + (1 - _KEEP) * latency_s if known else latency_s
        self._measured_s = now_s

    def seconds(self, num_bytes: int, now_s: float) -> float | None:
        """Until so many bytes, those ahead included, have come; None: not known."""
        return self._latency_s + num_bytes * self._seconds / self._bytes if self._known(now_s) else None

    def _known(self, now_s: float) -> bool:
        return self._measured_s is not None and now_s - self._measured_s <= FORGET_S


class PrefillSpeed:
    """Seconds that a prompt token takes, as a moving average over steps that run many of them."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def measured(self, num_tokens: int, num_requests: int, seconds: float) -> None:
        """A step has run. Steps that say little of prompts are passed over."""
        if seconds > 0 and num_tokens >= max(_MIN_TOKENS, _MIN_TOKENS_PER_REQUEST * num_requests):
            self._tokens = _KEEP * self._tokens + num_tokens
            self._seconds = _KEEP * self._seconds + seconds

    def seconds(self, num_tokens: int) -> float | None:
        """For so many tokens; None: not known."""
        return num_tokens * self._seconds / self._tokens if self._tokens else None
