"""A profile: what the engine did in some steps, and when. All times are seconds or nanoseconds of the core's clock."""

from enum import StrEnum

import msgspec


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A thread was busy with something."""

    name: str
    begin_s: float
    end_s: float
    args: dict[str, int] = {}


class OpInfo(msgspec.Struct, frozen=True, array_like=True):
    """What a program does at one place."""

    name: str
    """The same in every layer."""
    layer: int | None = None
    """None: it belongs to no layer."""
    detail: str = ""
    """For people: weights with shapes and number formats, heads."""


OP_COLUMNS = 5
"""Of a table of ops as they ran: place in the program's list of `OpInfo`, rows, begin and end in nanoseconds, and the
nanoseconds that all threads together spent in it."""


class StepProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A step on the executing side."""

    thread: int
    """As the system numbers it."""
    spans: tuple[Span, ...]
    """One after the other."""
    ops: dict[str, bytes] = {}
    """Program -> table of `OP_COLUMNS` little-endian int64, in the order in which they ran; empty where none are timed.
    None overlap, and each lies in a span, but for those of a part of the step that failed and was run again."""

    @property
    def num_ops(self) -> int:
        return sum(len(table) for table in self.ops.values()) // (8 * OP_COLUMNS)


class ProfiledStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step from its plan to its end."""

    step: int
    args: dict[str, int]
    """Requests, tokens, rows and drafts of it."""
    ran: StepProfile | None
    """None: the executor keeps no times."""


class RequestLife(msgspec.Struct, frozen=True, kw_only=True):
    """A request (a choice of one) that was there."""

    request_id: str
    arrival_s: float
    first_scheduled_s: float | None
    first_token_s: float | None
    end_s: float | None
    """None: it had not ended when the profile did."""
    state: str
    """Finish reason, or what it waited for."""
    preempted_s: list[float]
    """The first times that it was."""
    args: dict[str, int]


class ProfileEnd(StrEnum):
    """Why a profile ended."""

    STOPPED = "stopped"
    STEPS = "steps"
    """It has as many as were asked for."""
    SECONDS = "seconds"
    FULL = "full"
    """It has as many events as it may."""
    CLOSED = "closed"
    """The engine was closed."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded between a start and a stop."""

    number: int
    """Of the core's profiles, from 1."""
    process: int
    thread: int
    """Of the core's loop, as the system numbers it."""
    begin_s: float
    end_s: float
    begin_unix_s: float
    ended_by: ProfileEnd
    programs: dict[str, list[OpInfo]]
    """Those whose ops are timed; none with an executor that times none."""
    executor: str
    spans: list[Span]
    """Of the core's thread."""
    steps: list[ProfiledStep]
    """Those that were planned and taken in within the profile."""
    requests: list[RequestLife]
    num_events: int
    max_events: int


class ProfileState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a profile is."""

    number: int
    """0: there is none."""
    running: bool
    num_steps: int = 0
    num_events: int = 0
