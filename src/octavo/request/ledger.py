"""What became of a request of the API: the ledgers of its sequences."""

import msgspec

from octavo.request.outputs import FinishReason, RequestStats


class ChoiceLedger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence of a request: a choice of a prompt."""

    request_id: str
    """As the engine core knows it."""
    state: str
    """waiting, waiting_for_kv, running, preempted, ... or finished."""
    finish_reason: FinishReason | None = None
    """Of a finished one."""
    stats: RequestStats


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A note of a client to the core: the answer of an API request is out of its hands."""

    tenant: str
    group: str
    """As of `GenerateRequest`."""
    delivered_s: float
    """When, on the clock that all processes of the machine share."""


class RequestLedger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request of the API, live or finished. Holds nothing of its content."""

    request_id: str
    """As its answer names it."""
    tenant: str = ""
    alias: str = ""
    """A name that its client gave it."""
    priority: int = 0
    choices: list[ChoiceLedger]
    """In the order in which they came."""
    now_s: float
    """The clock of the stats, when this was written."""
