"""How long whoever stands in a line has waited for what: one clock for all of them, instead of one for each."""

from collections.abc import Sequence
from typing import Protocol

from octavo.request.account import WaitReason

REASONS: tuple[WaitReason, ...] = tuple(WaitReason)
_PLACE = {reason: place for place, reason in enumerate(REASONS)}


class Line(Protocol):
    """A clock per reason. One who joins reads it, and what it shows more when he leaves is what he waited for."""

    def read(self, now_s: float) -> list[float]:
        """Seconds by reason, in the order of `REASONS`, since some time in the past."""
        ...


class WaitLine:
    """The line of all who wait for the same, whatever that is at the moment."""

    def __init__(self) -> None:
        self.reason = WaitReason.STEP
        self._since_s = 0.0
        self._seconds = [0.0] * len(REASONS)

    def turn(self, reason: WaitReason, now_s: float) -> None:
        """From now on this is what they wait for."""
        self._seconds[_PLACE[self.reason]] += now_s - self._since_s
        self.reason, self._since_s = reason, now_s

    def read(self, now_s: float) -> list[float]:
        """See `Line.read`."""
        seconds = self._seconds.copy()
        seconds[_PLACE[self.reason]] += now_s - self._since_s
        return seconds


class TenantLine:
    """Those of one tenant: they wait for what all do, but while the tenant has as many running as it may.

    whole line    | slots | budget      | slots           | blocks
    tenant        | open          | at its limit    | open
    reads         | slots | budget| key_limit       | slots | blocks
    """

    def __init__(self, whole: WaitLine, now_s: float, *, is_full: bool) -> None:
        self._whole = whole
        self._seconds = [0.0] * len(REASONS)
        self._mark = whole.read(now_s)
        self._full_since_s = now_s if is_full else None

    def turn(self, now_s: float, *, is_full: bool) -> None:
        """Whether the tenant is at its limit from now on."""
        self._seconds = self.read(now_s)
        self._mark = self._whole.read(now_s)
        self._full_since_s = now_s if is_full else None

    def read(self, now_s: float) -> list[float]:
        """See `Line.read`."""
        if self._full_since_s is None:
            return [own + more for own, more in zip(self._seconds, passed(self._whole, self._mark, now_s), strict=True)]
        seconds = self._seconds.copy()
        seconds[_PLACE[WaitReason.KEY_LIMIT]] += now_s - self._full_since_s
        return seconds


def passed(line: Line, mark: Sequence[float], now_s: float) -> list[float]:
    """What a line shows more than it did when it was read."""
    return [after - before for before, after in zip(mark, line.read(now_s), strict=True)]
