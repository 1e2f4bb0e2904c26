"""A pause: what is not begun, and who still runs to the end."""

from collections.abc import Collection

from octavo.request.orders import PauseMode
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import SchedulerRequest


class Pause:
    """Whether there is one, and of which kind."""

    def __init__(self, waiting: WaitingQueue) -> None:
        self.mode: PauseMode | None = None
        """None: there is none."""
        self._waiting = waiting

    def begin(self, mode: PauseMode) -> None:
        """Begins a pause, or goes on in another mode. Whom ABORT ends is the caller's business; then it is WAIT, with
        nobody there to wait for."""
        self.mode = mode
        if mode in (PauseMode.ABORT, PauseMode.WAIT):
            self._waiting.hold_new()
        else:
            self._waiting.release_new()

    def end(self) -> None:
        """Ends a pause; no-op if there is none."""
        self.mode = None
        self._waiting.release_new()

    def num_to_finish(self, live: Collection[SchedulerRequest]) -> int:
        """During a pause: how many of the live requests still run to their end."""
        match self.mode:
            case PauseMode.ABORT | PauseMode.WAIT:
                return sum(request.has_run for request in live)
            case PauseMode.DRAIN:
                return len(live)
        return 0
