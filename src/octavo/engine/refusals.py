"""Refusals on their way from the core to its client: exceptions there, plain data between, the same exceptions here."""

from octavo.errors import EngineDrainingError, InvalidRequestError, PinBudgetError, ProfileError, QueueFullError
from octavo.request.control import Refusal
from octavo.request.outputs import FinishReason, RequestOutput

Refused = InvalidRequestError | QueueFullError | PinBudgetError | EngineDrainingError | ProfileError
REFUSALS = (InvalidRequestError, QueueFullError, PinBudgetError, EngineDrainingError, ProfileError)
"""What the core may raise before it does anything."""


def refusal_of(error: Refused) -> Refusal:
    """The refusal as data."""
    match error:
        case InvalidRequestError():
            return Refusal(message=error.problem, status=400, field=error.field, value=str(error.value))
        case QueueFullError():
            return Refusal(message=str(error), status=429, retry_after_s=error.retry_after_s)
        case PinBudgetError():
            return Refusal(message=str(error), status=429, retry_after_s=error.retry_after_s, code="pin_budget")
        case EngineDrainingError():
            return Refusal(message=str(error), status=503)
        case ProfileError():
            return Refusal(message=str(error), status=409)


def error_of(refusal: Refusal) -> Refused:
    """The exception that it was."""
    if refusal.status == 400:
        return InvalidRequestError(refusal.field, refusal.value, refusal.message)
    if refusal.status == 503:
        return EngineDrainingError(refusal.message)
    if refusal.status == 409:
        return ProfileError(refusal.message)
    kind = PinBudgetError if refusal.code == "pin_budget" else QueueFullError
    return kind(refusal.message, refusal.retry_after_s)


def refused_output(request_id: str, refusal: Refusal) -> RequestOutput:
    """The only output of a request that was not taken."""
    return RequestOutput(
        request_id=request_id,
        finish_reason=FinishReason.ERROR,
        error=refusal.message,
        error_status=refusal.status,
        error_field=refusal.field,
        error_value=refusal.value,
        error_code=refusal.code,
        retry_after_s=refusal.retry_after_s,
    )


def raise_refusal(output: RequestOutput) -> None:
    """Raises if the core did not take the request. Failures while running are outputs like others."""
    if output.error is None or output.error_status not in (400, 429, 503):
        return
    refusal = Refusal(
        message=output.error,
        status=output.error_status,
        field=output.error_field,
        value=output.error_value,
        code=output.error_code,
        retry_after_s=output.retry_after_s,
    )
    raise error_of(refusal)
