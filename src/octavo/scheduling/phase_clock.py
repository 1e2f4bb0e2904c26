"""The phase that a request is in, and how long it was in each."""

from collections.abc import Sequence

from octavo.request.account import Phase, WaitReason
from octavo.scheduling.wait_line import REASONS, Line, passed


class PhaseClock:
    """Turned when something happens to the request, never by a step that runs: whoever decodes costs nothing.

    In a waiting phase it knows for what: one reason, or whatever a line waits for.
    """

    __slots__ = ("_line", "_mark", "_reason", "_resumes_as", "_seconds", "_since_s", "_waits", "phase")

    def __init__(self, arrival_s: float) -> None:
        self.phase = Phase.QUEUE
        """What it is in; turned by the methods alone."""
        self._since_s = arrival_s
        self._reason: WaitReason | None = WaitReason.STEP
        self._line: Line | None = None
        self._mark: Sequence[float] = ()
        self._resumes_as = Phase.PREFILL
        self._seconds: dict[Phase, float] = {}
        self._waits: dict[Phase, dict[WaitReason, float]] = {}

    def enter(self, phase: Phase, now_s: float) -> None:
        """A phase in which it runs. Of one that is stalled: it will go on in that."""
        if self.phase is Phase.STALLED and phase is Phase.DECODE:
            self._resumes_as = phase
            return
        self._settle(now_s)
        self.phase, self._reason, self._line = phase, None, None

    def wait(self, phase: Phase, reason: WaitReason, now_s: float) -> None:
        """A phase in which it waits for one thing, or goes on waiting for another."""
        if phase is Phase.STALLED and self.phase is not Phase.STALLED:
            self._resumes_as = self.phase
        self._settle(now_s)
        self.phase, self._reason, self._line = phase, reason, None

    def wait_in(self, line: Line, mark: Sequence[float], now_s: float) -> None:
        """It goes on waiting, for what a line waits for.

        Args:
            mark: what the line reads now. Others may have it, too.
        """
        self._settle(now_s)
        self._reason, self._line, self._mark = None, line, mark

    def wait_for(self, reason: WaitReason, now_s: float) -> None:
        """It goes on waiting in the same phase, for one thing."""
        self.wait(self.phase, reason, now_s)

    @property
    def stall_reason(self) -> WaitReason | None:
        """Why steps are planned without it; None: they are not."""
        return self._reason if self.phase is Phase.STALLED else None

    def go_on(self, now_s: float) -> None:
        """It is stalled no longer."""
        self._settle(now_s)
        self.phase, self._reason = self._resumes_as, None

    def _settle(self, now_s: float) -> None:
        spent, self._since_s = now_s - self._since_s, now_s
        self._seconds[self.phase] = self._seconds.get(self.phase, 0.0) + spent
        if self._line is None and self._reason is None:
            return
        waits = self._waits.setdefault(self.phase, {})
        if self._reason is not None:
            waits[self._reason] = waits.get(self._reason, 0.0) + spent
        elif self._line is not None:
            for reason, seconds in zip(REASONS, passed(self._line, self._mark, now_s), strict=True):
                if seconds:
                    waits[reason] = waits.get(reason, 0.0) + seconds

    def stop(self, now_s: float) -> None:
        """The request has ended: what passes from now on does not count."""
        self._settle(now_s)
        self._reason, self._line = None, None

    def times(self, now_s: float) -> tuple[dict[Phase, float], dict[Phase, dict[WaitReason, float]]]:
        """Seconds by phase so far, and those of waiting phases by reason. The clock goes on."""
        self._settle(now_s)
        if self._line is not None:
            self._mark = self._line.read(now_s)
        seconds = {phase: self._seconds[phase] for phase in Phase if self._seconds.get(phase)}
        return seconds, {phase: dict(waits) for phase, waits in self._waits.items() if phase in seconds}
