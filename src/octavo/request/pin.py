"""Sessions: prefixes that stay in the KV memory, whatever else comes, until a lease ends."""

import re

import msgspec

from octavo.errors import InvalidRequestError

DEFAULT_LEASE_S = 600.0
MAX_LEASE_S = 7 * 86400.0
MAX_SESSIONS_PER_TENANT = 1024
"""Sessions that hold nothing cost a record each."""

_SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class PinRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session of a request. When the request has ended well the session holds its full blocks, of prompt and
    output, in place of what it held before. A session that does not exist comes into being with the request.

    Raises:
        InvalidRequestError: naming `session_id` or `lease_s`.
    """

    session_id: str
    """Unique per tenant."""
    lease_s: float | None = None
    """Seconds from its last use for which the session lives; None: as before, 600 for a new one."""

    def __post_init__(self) -> None:
        check_session_id(self.session_id)
        if self.lease_s is not None:
            check_lease(self.lease_s)


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is now."""

    session_id: str
    lease_s: float
    expires_in_s: float
    """Seconds until it ends, unless it is used before."""
    num_pinned_tokens: int
    """Leading tokens of its last prompt and answer that it holds."""
    num_pinned_blocks: int
    """Over all cache groups; blocks that other sessions hold, too, are counted here and there."""
    num_live_requests: int
    """Requests that use it now. It does not end before them."""


def check_session_id(session_id: object) -> None:
    """
    Raises:
        InvalidRequestError: it is not of that form.
    """
    if not isinstance(session_id, str) or _SESSION_ID.fullmatch(session_id) is None:
        problem = "must be 1 to 128 of the characters A-Z a-z 0-9 . _ : -"
        raise InvalidRequestError("session_id", session_id, problem)


def check_lease(lease_s: float) -> None:
    """
    Raises:
        InvalidRequestError: it is no sensible number of seconds.
    """
    is_number = isinstance(lease_s, int | float) and not isinstance(lease_s, bool)
    if not (is_number and 1 <= lease_s <= MAX_LEASE_S):
        raise InvalidRequestError("lease_s", lease_s, f"must be a number of seconds in [1, {MAX_LEASE_S:.0f}]")
