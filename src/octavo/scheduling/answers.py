"""From the tokens of a step to what a client gets of it."""

from collections.abc import Sequence

import msgspec

from octavo.request.account import Phase
from octavo.request.control import Refusal
from octavo.request.outputs import FinishReason, LogprobRow, RequestOutput
from octavo.scheduling.request_state import SchedulerRequest

UNFIT = 422
"""HTTP status of requests that begin well, but that nothing can fulfil: asking again would not help."""


def take_tokens(
    request: SchedulerRequest,
    token_ids: Sequence[int],
    rows: Sequence[LogprobRow] | None,
    now_s: float,
    *,
    completes: bool = False,
) -> RequestOutput:
    """Appends tokens up to the one that ends the request; those behind it are dropped with their logprobs.

    Where a token ends the request, `finish_reason` says so; the caller then finishes it and adds the ledger.

    Args:
        completes: the answer is whole with these tokens, which is a good end even where its length is up.
    """
    num_kept = _append(request, token_ids)
    if num_kept > 1:
        request.stats.num_saved_steps += num_kept - 1
    ends_with_text = completes and num_kept == len(token_ids) and request.finish_reason is not FinishReason.STOP
    if ends_with_text:
        request.finish_reason = FinishReason.STOP
    is_over = request.finish_reason is not None
    clock = request.book.clock
    if clock.phase is not Phase.DECODE:
        clock.enter(Phase.DECODE, now_s)
    if rows is None and request.has_emitted and not is_over:
        return RequestOutput(request_id=request.request_id, new_token_ids=list(token_ids))  # as mostly
    prompt_logprobs = None
    is_first = not request.has_emitted
    if is_first:
        request.has_emitted = True
        request.stats.first_token_s = now_s
        prompt_logprobs = request.take_prompt_logprobs()
    if is_over:
        request.stats.finished_s = now_s
        request.stats.num_overrun_tokens = request.num_overrun
    return RequestOutput(
        request_id=request.request_id,
        new_token_ids=list(token_ids[:num_kept]),
        new_logprobs=None if rows is None else list(rows[:num_kept]),
        prompt_logprobs=prompt_logprobs,
        finish_reason=request.finish_reason,
        stop_token_id=request.stop_token_id,
        ends_with_text=ends_with_text,
        stats=request.ledger(now_s if is_over else None) if is_first or is_over else None,
    )


def take_vector(request: SchedulerRequest, vector: bytes, now_s: float) -> RequestOutput:
    """The only output of a pooled request; the caller then finishes it."""
    request.stats.finished_s = now_s
    return RequestOutput(
        request_id=request.request_id, vector=vector, finish_reason=FinishReason.STOP, stats=request.ledger(now_s)
    )


def _append(request: SchedulerRequest, token_ids: Sequence[int]) -> int:
    """Appends tokens up to the one that ends the request; how many that were."""
    if len(token_ids) == 1:  # as mostly
        request.append(token_ids[0])
        return 1
    for num_kept, token_id in enumerate(token_ids, 1):
        if request.append(token_id):
            return num_kept
    return len(token_ids)


def refusal(request: SchedulerRequest, problem: Refusal, now_s: float) -> RequestOutput:
    """The only output of a request that turns out to be one that cannot be honoured."""
    return msgspec.structs.replace(
        failure(request, problem.message, now_s),
        error_status=problem.status,
        error_field=problem.field,
        error_value=problem.value,
    )


def blamed(
    requests: Sequence[SchedulerRequest], outputs: Sequence[RequestOutput], unfit: Sequence[str]
) -> list[RequestOutput]:
    """The last outputs of requests that failed; those of `unfit` ones say that it was for what they ask, and in which
    of their fields."""
    told = []
    for request, output in zip(requests, outputs, strict=True):
        if output.request_id in unfit:
            spec = request.request.params.structured_outputs
            field = "" if spec is None else spec.field
            output = msgspec.structs.replace(output, error_status=UNFIT, error_field=field)
        told.append(output)
    return told


def failure(request: SchedulerRequest, problem: str, now_s: float) -> RequestOutput:
    """The last output of a request that ended with an error."""
    return RequestOutput(
        request_id=request.request_id,
        finish_reason=FinishReason.ERROR,
        error=problem,
        stats=request.ledger(now_s),
    )
