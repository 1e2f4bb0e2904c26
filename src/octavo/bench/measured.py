"""What every measurement shares: fixed-length greedy generation, and outputs that are checked before they count."""

from collections.abc import Iterable, Sequence

from octavo.engine.llm import LLM
from octavo.engine.output import GenerationOutput
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.request.outputs import RequestStats
from octavo.request.params import SamplingParams


def fixed_length(output_len: int) -> SamplingParams:
    """Exactly `output_len` greedy tokens, whatever the model would like."""
    return SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True, detokenize=False)


def run_batch(llm: LLM, prompts: Sequence[list[int]], output_len: int) -> list[RequestStats]:
    """Generates for all prompts at once.

    Returns:
        The ledger of each request.

    Raises:
        InvalidRequestError: prompts and answers do not fit the context.
        RequestFailedError: a request did not yield what was asked, so the measurement means nothing.
    """
    room = llm.info.max_model_len - output_len
    longest = max(len(prompt) for prompt in prompts)
    if longest > room:
        problem = f"with --output-len {output_len} the context of {llm.info.max_model_len} tokens leaves {room}"
        raise InvalidRequestError("input_len", longest, problem)
    outputs = llm.generate([list(prompt) for prompt in prompts], fixed_length(output_len))
    return [_ledger(output, output_len) for output in outputs]


def draft_figures(ledgers: Iterable[RequestStats]) -> dict[str, float]:
    """What came of the drafts of requests; empty if there were none."""
    total = RequestStats()
    for ledger in ledgers:
        total.num_drafts += ledger.num_drafts
        total.num_draft_tokens += ledger.num_draft_tokens
        total.num_accepted_draft_tokens += ledger.num_accepted_draft_tokens
        total.num_saved_steps += ledger.num_saved_steps
    if total.mean_acceptance_length is None:
        return {}
    return {
        "mean_acceptance_length": total.mean_acceptance_length,
        "draft_tokens": total.num_draft_tokens,
        "accepted_draft_tokens": total.num_accepted_draft_tokens,
        "wasted_draft_tokens": total.num_wasted_draft_tokens,
        "saved_steps": total.num_saved_steps,
    }


def _ledger(output: GenerationOutput, output_len: int) -> RequestStats:
    (choice,) = output.outputs
    if choice.error is not None or len(choice.token_ids) != output_len or choice.stats is None:
        raise RequestFailedError(
            f"{len(choice.token_ids)} of {output_len} tokens came: {choice.error or 'no error told'}"
        )
    return choice.stats
