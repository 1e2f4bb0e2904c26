"""What came of a request: plain data from which all figures are counted."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. Each has exactly one."""

    COMPLETED = "completed"
    """The answer is whole."""
    REJECTED = "rejected"
    """The server had no room: 429, 503 or 529, before any token."""
    ERRORED = "errored"
    """Anything else that was not asked for: no connection, another status, an error or the end amid the stream."""
    ABORTED = "aborted"
    """Given up: by us, on purpose or after the time limit, or by the server (`finish_reason` "abort")."""


@dataclass(frozen=True)
class Answer:
    """What the client saw of one response. Times are of the event loop's clock."""

    sent_s: float
    """Before a connection was looked for."""
    ended_s: float
    outcome: Outcome
    chunk_s: "array[float]" = field(default_factory=lambda: array("d"))
    """When each chunk arrived that carries something of the answer: no roles, no usage."""
    status: int | None = None
    prompt_tokens: int | None = None
    """By the server's count, as the next two."""
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    text: str = ""

    @property
    def came_s(self) -> Sequence[float]:
        """When parts of the answer came: its chunks; of one that was taken whole, its end."""
        return self.chunk_s or ((self.ended_s,) if self.outcome is Outcome.COMPLETED else ())


@dataclass(frozen=True)
class Exchange:
    """A request and its answer. Times are seconds since the run began."""

    dialogue: int
    turn: int
    intended_s: float
    """When it should have been sent: by the schedule, or when the one before it let it (closed loop, later turns)."""
    answer: Answer
    input_len: int | None = None
    output_len: int | None = None
    slo: str | None = None

    @property
    def output_tokens(self) -> int:
        """By the server's count; where it tells none, chunks."""
        counted = self.answer.output_tokens
        return len(self.answer.chunk_s) if counted is None else counted
