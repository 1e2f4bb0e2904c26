"""What every measurement shares: fixed-length greedy generation, and outputs that are checked before they count."""

from collections.abc import Iterable, Sequence

from octavo.bench.datasets import Step, Talk
from octavo.engine.llm import LLM
from octavo.engine.output import GenerationOutput
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.request.outputs import RequestStats
from octavo.request.params import SamplingParams


def fixed_length(output_len: int) -> SamplingParams:
    """Exactly `output_len` greedy tokens, whatever the model would like."""
    return SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True, detokenize=False)


def run_talks(llm: LLM, talks: Sequence[Talk]) -> list[list[RequestStats]]:
    """Runs talks side by side: all their first requests at once, then, with what was said, all second ones, and so on.

    Returns:
        The ledgers of each of these rounds.

    Raises:
        InvalidRequestError: prompts and answers do not fit the context.
        RequestFailedError: a request did not yield what was asked, so the measurement means nothing.
    """
    said: list[list[int]] = [[] for _ in talks]
    rounds: list[list[RequestStats]] = []
    for position in range(max(map(len, talks))):
        under_way = [number for number, talk in enumerate(talks) if position < len(talk)]
        asked = [
            Step(said[number] + talks[number][position].token_ids, talks[number][position].output_len)
            for number in under_way
        ]
        answered = _run_round(llm, asked)
        for number, step, output in zip(under_way, asked, answered, strict=True):
            said[number] = [*step.token_ids, *output.outputs[0].token_ids]
        rounds.append([_ledger(output, step.output_len) for step, output in zip(asked, answered, strict=True)])
    return rounds


def run_batch(llm: LLM, prompts: Sequence[list[int]], output_len: int) -> list[RequestStats]:
    """Single requests at once: `run_talks` of one round."""
    (ledgers,) = run_talks(llm, [(Step(prompt, output_len),) for prompt in prompts])
    return ledgers


def mean_len(lengths: Sequence[int]) -> float | int:
    """The length of all where they have one, else their mean."""
    return lengths[0] if len(set(lengths)) == 1 else sum(lengths) / len(lengths)


def _run_round(llm: LLM, asked: Sequence[Step]) -> list[GenerationOutput]:
    for step in asked:
        room = llm.info.max_model_len - step.output_len
        if len(step.token_ids) > room:
            context = f"the context of {llm.info.max_model_len} tokens"
            problem = f"with --output-len {step.output_len} {context} leaves {room}"
            raise InvalidRequestError("input_len", len(step.token_ids), problem)
    params = [fixed_length(step.output_len) for step in asked]
    return llm.generate([list(step.token_ids) for step in asked], params)


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
