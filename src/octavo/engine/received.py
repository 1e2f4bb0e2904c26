"""When the work that goes on was asked for: the begin of a request's ledger, before the engine has heard of it."""

import time
from contextvars import ContextVar

RECEIVED_S: ContextVar[float | None] = ContextVar("received_s", default=None)
"""Set by whoever takes requests in from outside, for what it does for one; on `time.monotonic`, which all processes of
a machine share. None: work begins where the engine is called."""


def received_s() -> float:
    """When the request came for which the engine is called now."""
    came_s = RECEIVED_S.get()
    return time.monotonic() if came_s is None else came_s
