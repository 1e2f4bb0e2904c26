"""Running requests that steps are planned without."""

from collections.abc import Iterable

from octavo.request.account import Phase, WaitReason
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.running import RunningSet
from octavo.scheduling.step_draft import StepDraft


class Stalls:
    """Turns the clocks of those who stand still, and of those who go on. Looks at nobody as long as all run."""

    def __init__(self, running: RunningSet) -> None:
        self._running = running
        self._stalled: dict[SchedulerRequest, None] = {}

    def planned(self, draft: StepDraft) -> None:
        """A step has been planned: whoever has no share of it stands still until he has one of another."""
        for request in list(self._stalled):
            if request.status is not RequestStatus.RUNNING:
                del self._stalled[request]
            elif request in draft.shares:
                request.book.clock.go_on(draft.now_s)
                del self._stalled[request]
        if len(draft.shares) < len(self._running):
            left_out = [request for request in self._running if request not in draft.shares]
            self._stall(left_out, WaitReason.BLOCKS if draft.is_short else WaitReason.BUDGET, draft.now_s)

    def pause(self, now_s: float) -> None:
        """No step is planned."""
        if len(self._stalled) < len(self._running):
            self._stall(self._running, WaitReason.PAUSED, now_s)

    def _stall(self, requests: Iterable[SchedulerRequest], reason: WaitReason, now_s: float) -> None:
        """But for those that only wait for their last token, which is in flight."""
        for request in requests:
            is_done = request.num_foreseen >= request.max_total_tokens
            if not is_done and request.book.clock.stall_reason is not reason:
                request.book.clock.wait(Phase.STALLED, reason, now_s)
                self._stalled[request] = None
