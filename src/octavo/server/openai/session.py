"""What an answer says of its session."""

from typing import Any

from octavo.request.outputs import RequestStats
from octavo.request.pin import PinRequest


def session_facts(session: PinRequest, stats: RequestStats | None) -> dict[str, Any]:
    """`pinned_tokens` is what the session holds, null where nobody knows how the answer ended. `problem` says, with the
    numbers, why the answer is not held."""
    return {
        "id": session.session_id,
        "pinned_tokens": None if stats is None else stats.num_pinned_tokens,
        "problem": (stats.pin_problem or None) if stats is not None else None,
    }
