"""Where step records go."""

from typing import Protocol

from octavo.request.step_record import StepRecord


class StepSink(Protocol):
    """Takes records in the step loop's thread. No method but `close` ever waits for anybody."""

    wants_beats: bool
    """Whether signs of life of an engine that rests belong here."""

    def put(self, record: StepRecord) -> None:
        """Takes a record, or loses it where its readers are too slow. Never raises."""
        ...

    def close(self) -> None:
        """Ends, after what was put here has had its chance to leave. Idempotent."""
        ...
