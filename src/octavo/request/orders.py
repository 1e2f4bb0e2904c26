"""What a client orders the engine core to do, beside requests: one struct per command, with what belongs to it."""

from enum import StrEnum

import msgspec

from octavo.request.outputs import FinishReason
from octavo.request.pin import PinRequest


class RecordLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many records are kept for all tenants together, how large, how long."""

    max_records: int
    """0: none."""
    max_bytes: int
    max_age_s: float


MAX_TRACE_EVENTS = 200_000
"""What a profile may have, if nothing is said: about 40 MB of JSON."""


class PauseMode(StrEnum):
    """What a pause does with the requests that are there. What comes later waits for the end of the pause."""

    ABORT = "abort"
    """All end now, with finish reason abort."""
    WAIT = "wait"
    """Those that have begun run to their end; those that have not wait."""
    KEEP = "keep"
    """Nothing runs; all go on where they were when the pause ends."""
    DRAIN = "drain"
    """All run to their end, and what comes later is refused (503)."""


class _Command(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="command"):
    """Crosses with the name of its class."""


class Abort(_Command, frozen=True):
    """Ends requests; whoever asked for them has gone."""

    request_ids: list[str]


class End(_Command, frozen=True):
    """How a request has ended for its caller, where the core says otherwise or nothing: at a stop string in its text,
    or with an error, for no text can be made of its tokens. Ends a live one; the ledger of one that had ended by then
    is put right. The reply is its ledger, None if it is forgotten."""

    tenant: str
    group: str
    """As of `GenerateRequest`, but never empty."""
    request_id: str
    reason: FinishReason


class Cancel(_Command, frozen=True):
    """Like Abort, with a last output."""

    request_ids: list[str]


class CancelNamed(_Command, frozen=True):
    """Like Cancel, for API requests by name; the reply has the names of those that were live."""

    tenant: str
    names: list[str]
    """`GenerateRequest.group` or `alias`."""


class Leave(_Command, frozen=True):
    """A client of the core is gone; its requests are aborted."""

    client: int


class Ledger(_Command, frozen=True):
    """The reply has the ledger of an API request, if it is known."""

    tenant: str
    name: str
    """`GenerateRequest.group` or `alias`."""


class LiveRequests(_Command, frozen=True):
    """The reply has the ledgers of all that are there."""


class Pause(_Command, frozen=True):
    """The reply has the number of sequences that it ended."""

    mode: PauseMode


class Resume(_Command, frozen=True):
    """Ends a pause."""


class OpenSession(_Command, frozen=True):
    """The reply has the session's state."""

    tenant: str
    pin: PinRequest
    token_ids: list[int] = []
    """A prompt that is to be pinned, if it can be."""
    cache_salt: str | None = None
    """Of that prompt."""


class ExtendSession(_Command, frozen=True):
    """The reply has the session's state; None if there is none."""

    tenant: str
    pin: PinRequest


class EndSession(_Command, frozen=True):
    """The reply says whether there was one."""

    tenant: str
    pin: PinRequest


class Sessions(_Command, frozen=True):
    """The reply has the states of a tenant's sessions."""

    tenant: str


class PutRecord(_Command, frozen=True):
    """The reply says whether it is kept."""

    tenant: str
    name: str
    content: bytes
    limits: RecordLimits


class GetRecord(_Command, frozen=True):
    """The reply has the record's content; None if it is not kept (any more)."""

    tenant: str
    name: str


class RemoveRecord(_Command, frozen=True):
    """The reply says whether there was one."""

    tenant: str
    name: str


class GetLoad(_Command, frozen=True):
    """The reply has an EngineLoad."""


class ResetPrefixCache(_Command, frozen=True):
    """The reply is False while requests hold blocks."""


class StartProfile(_Command, frozen=True):
    """The reply has the profile's number. It ends by itself at the first of the limits that it reaches."""

    max_steps: int | None = None
    max_seconds: float | None = None
    max_events: int = MAX_TRACE_EVENTS


class GetProfileState(_Command, frozen=True):
    """The reply has a ProfileState."""


class StopProfile(_Command, frozen=True):
    """Ends the profile, if it has not ended, and forgets it; the reply has it."""

    number: int | None = None
    """None: whichever there is."""


class Shutdown(_Command, frozen=True):
    """Ends the core; running requests are the client's business."""


Order = (
    Abort
    | End
    | Cancel
    | CancelNamed
    | Leave
    | Ledger
    | LiveRequests
    | Pause
    | Resume
    | OpenSession
    | ExtendSession
    | EndSession
    | Sessions
    | PutRecord
    | GetRecord
    | RemoveRecord
    | GetLoad
    | ResetPrefixCache
    | StartProfile
    | GetProfileState
    | StopProfile
    | Shutdown
)
