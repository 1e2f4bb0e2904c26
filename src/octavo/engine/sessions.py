"""Sessions as callers name them, and prompts that run for the sake of being held."""

from octavo.engine.output import ChoiceDelta
from octavo.errors import PinBudgetError, RequestFailedError, SessionNotFoundError
from octavo.request.params import SamplingParams
from octavo.request.pin import PinRequest, SessionState

Session = str | PinRequest
"""A session's id, or with its lease."""

WARM_UP = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True, detokenize=False)
"""Computes a prompt; the one token that comes of it is dropped."""

RETRY_S = 1.0
"""When to try again after somebody else took the room at the last moment."""


def pin_of(session: Session | None) -> PinRequest | None:
    """The session as a request carries it, if it has one.

    Raises:
        InvalidRequestError: an id of another form.
    """
    return None if session is None else checked_pin(session)


def checked_pin(session: Session) -> PinRequest:
    """The session as a request carries it.

    Raises:
        InvalidRequestError: an id of another form.
    """
    return session if isinstance(session, PinRequest) else PinRequest(session_id=session)


def check_held(last: ChoiceDelta) -> None:
    """Checks how a warm-up ended.

    Raises:
        PinBudgetError: its prompt is not held.
        RequestFailedError: it failed.
    """
    if last.error is not None:
        raise RequestFailedError(last.error)
    if last.stats is None or last.stats.pin_problem:
        raise PinBudgetError("the request was ended early" if last.stats is None else last.stats.pin_problem, RETRY_S)


def found(state: SessionState | None, session_id: str) -> SessionState:
    """The state of a session that was asked for.

    Raises:
        SessionNotFoundError: there is none.
    """
    if state is None:
        problem = f"there is no session {session_id[:128]!r}: it was never opened, or its lease has ended"
        raise SessionNotFoundError(problem)
    return state
