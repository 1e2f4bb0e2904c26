"""What a start chose and how long it took, in the log: one line each for information and for debugging."""

import logging

from octavo.engine.output import EngineInfo

log = logging.getLogger(__name__)


def log_start(info: EngineInfo) -> None:
    """Logs threads, memory and limits as they were chosen, and the phases of the core's start."""
    log.info("%s", info.describe())
    log.debug("core started: %s", ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in info.start_s.items()))


def warn_of_threads(threads: int, usable_cores: int) -> None:
    """Says so where there are more threads than cores: they run, and wait for each other in every step."""
    if threads > usable_cores:
        log.warning(
            "threads=%d, but this process may use %d cores: steps get slower, not faster", threads, usable_cores
        )


class PhaseTimes:
    """Seconds between marks, by the name of what ended there."""

    def __init__(self, begin: float) -> None:
        self.seconds: dict[str, float] = {}
        self._last = begin

    def mark(self, phase: str, now: float) -> None:
        """Notes that a phase ended now."""
        self.seconds[phase] = now - self._last
        self._last = now
