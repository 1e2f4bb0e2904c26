"""What helpers report to the scheduler: something that a request has waited for."""

import msgspec

from octavo.request.control import Refusal


class ReadyEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a wait: the request may run, or it ends here. What it waited for stays where it was made: a compiled
    grammar never crosses."""

    ticket: int
    """The request's place in the order of arrival: ids may come again while this is on its way, tickets never do."""
    refusal: Refusal | None = None
    """Why it cannot be had; None: it is there."""
