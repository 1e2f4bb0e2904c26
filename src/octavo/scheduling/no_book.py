"""A book that nobody keeps: the same calls, and nothing comes of them."""

from collections.abc import Sequence

from octavo.request.account import Account, Phase, WaitReason, WorkDone
from octavo.scheduling.block_curve import BlockCurve
from octavo.scheduling.phase_clock import PhaseClock
from octavo.scheduling.request_book import RequestBook
from octavo.scheduling.wait_line import Line


class _NoClock(PhaseClock):
    def __init__(self) -> None:
        super().__init__(0.0)
        self.phase = Phase.DECODE  # in which tokens turn no clock

    def enter(self, phase: Phase, now_s: float) -> None:
        """Not noted."""

    def wait(self, phase: Phase, reason: WaitReason, now_s: float) -> None:
        """Not noted."""

    def wait_in(self, line: Line, mark: Sequence[float], now_s: float) -> None:
        """Not noted."""

    def stop(self, now_s: float) -> None:
        """Not noted."""


class _NoCurve(BlockCurve):
    def hold(self, num_blocks: int, now_s: float) -> None:
        """Not noted."""


class _NoBook(RequestBook):
    def __init__(self) -> None:
        super().__init__(0, 0.0, ())
        self.clock = _NoClock()
        self.curve = _NoCurve()

    def planned(
        self,
        step: int,
        start: int,
        num_tokens: int,
        num_drafts: int,
        num_sampled: int,
        num_recomputed: int,
        part: float,
    ) -> None:
        """Not noted."""

    def correct(self, work: WorkDone, planned: tuple[int, int], ran: tuple[int, int]) -> None:
        """Not noted."""

    def account(self, now_s: float) -> Account | None:
        """There is none."""
        return None


NO_BOOK = _NoBook()
"""For all requests whose accounts nobody keeps."""
