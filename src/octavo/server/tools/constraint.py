"""A call format as the request's constraint."""

import json

from octavo.request.structured import ArgumentSyntax, CallShape, CallsShape
from octavo.server.tools.call_format import CallFormat


def calls_shape(wanted: CallFormat) -> CallsShape:
    """What structured output enforces, for what a family wants to be enforced."""
    return CallsShape(
        calls=tuple(
            CallShape(
                begin=pattern.begin,
                end=pattern.end,
                schema=json.dumps(pattern.schema),
                syntax=ArgumentSyntax(pattern.syntax.value),
                quote=pattern.quote,
            )
            for pattern in wanted.calls
        ),
        begin=wanted.begin,
        separator=wanted.separator,
        end=wanted.end,
        trigger=wanted.trigger,
        min_calls=wanted.min_calls,
        max_calls=wanted.max_calls,
    )
