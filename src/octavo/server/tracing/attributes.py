"""What a span says of its request: OpenTelemetry's names for generative AI, vLLM's where those have none, `octavo.` for
the rest. Nothing of the request's content, no key, no tenant."""

from collections.abc import Mapping, Sequence

from octavo.request.account import Account, WaitReason
from octavo.request.outputs import RequestStats
from octavo.request.params import SamplingParams
from octavo.server.access_log import RequestFigures
from octavo.server.tracing.request_trace import Asked, TracedSequence

Attribute = str | bool | int | float | Sequence[str]
Attributes = dict[str, Attribute]

OPERATIONS: Mapping[str, str] = {
    "/v1/completions": "text_completion",
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/embeddings": "embeddings",
}
"""Path -> the operation's name in the conventions, of what is traced: all that generates."""


def first_attributes(path: str, model: str) -> Attributes:
    """Known when the request comes; samplers decide by these."""
    return {
        "gen_ai.operation.name": OPERATIONS[path],
        "gen_ai.provider.name": "octavo",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "http.request.method": "POST",
        "http.route": path,
        "url.path": path,
    }


def asked_attributes(asked: Asked) -> Attributes:
    """What the request asks for."""
    about: Attributes = {
        "gen_ai.response.id": asked.request_id,
        "gen_ai.request.id": asked.request_id,
        "gen_ai.request.n": asked.num_choices,
        "gen_ai.usage.num_sequences": len(asked.prompt_lens) * asked.num_choices,
    }
    if asked.num_choices != 1:
        about["gen_ai.request.choice.count"] = asked.num_choices
    return about if asked.params is None else about | _sampling(asked.params)


def _sampling(params: SamplingParams) -> Attributes:
    """Stop sequences are left out: they are the user's words."""
    about: Attributes = {
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": float(params.top_k),
        "gen_ai.request.frequency_penalty": params.frequency_penalty,
        "gen_ai.request.presence_penalty": params.presence_penalty,
    }
    if params.max_tokens is not None:
        about["gen_ai.request.max_tokens"] = params.max_tokens
    if params.seed is not None:
        about["gen_ai.request.seed"] = params.seed
    return about


def usage_attributes(asked: Asked, figures: RequestFigures, sequences: Sequence[TracedSequence]) -> Attributes:
    """Tokens as the answer's `usage` counts them, under today's names and under those that vLLM still writes."""
    num_prompt = sum(asked.prompt_lens)
    return {
        "gen_ai.usage.input_tokens": num_prompt,
        "gen_ai.usage.prompt_tokens": num_prompt,
        "gen_ai.usage.output_tokens": figures.output_tokens,
        "gen_ai.usage.completion_tokens": figures.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": figures.cached_tokens,
        "gen_ai.response.finish_reasons": [str(one.reason) for one in sequences],
    }


def ledger_attributes(stats: Sequence[RequestStats]) -> Attributes:
    """What it took the engine: of one sequence, or of all of a request together."""
    about: Attributes = {
        "octavo.computed_tokens": sum(one.num_computed_tokens for one in stats),
        "octavo.recomputed_tokens": sum(one.num_recomputed_tokens for one in stats),
        "octavo.preemptions": sum(one.num_preemptions for one in stats),
        "octavo.steps": sum(one.num_steps for one in stats),
    }
    num_drafts = sum(one.num_draft_tokens for one in stats)
    if num_drafts:
        about["octavo.draft_tokens"] = num_drafts
        about["octavo.accepted_draft_tokens"] = sum(one.num_accepted_draft_tokens for one in stats)
    grammar_s = max((one.waited_for_grammar_s for one in stats), default=0.0)
    if grammar_s:
        about["octavo.waited_for_grammar_s"] = grammar_s
    accounts = [one.account for one in stats if one.account is not None]
    return about | _account_attributes(accounts[0]) if len(stats) == len(accounts) == 1 else about


def _account_attributes(account: Account) -> Attributes:
    """Where the time of one sequence went, phase by phase, and what it waited for in those in which nothing ran."""
    reasons: dict[WaitReason, float] = {}
    for waits in account.waits_s.values():
        for reason, seconds in waits.items():
            reasons[reason] = reasons.get(reason, 0.0) + seconds
    phases = {f"octavo.phase.{phase}_s": seconds for phase, seconds in account.phases_s.items()}
    return {**phases, **{f"octavo.wait.{reason}_s": seconds for reason, seconds in reasons.items()}}
