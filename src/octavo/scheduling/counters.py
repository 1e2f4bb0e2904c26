"""Monotone totals of the scheduler since its start."""

from dataclasses import dataclass, field

from octavo.request.outputs import FinishReason


@dataclass
class SchedulerCounters:
    """Totals in tokens, requests and steps. `as_dict` gives them under the names used in metrics."""

    steps: int = 0
    """Plans issued."""
    prompt_tokens: int = 0
    """Prompt tokens of requests admitted for the first time, cached ones included."""
    prefix_queries: int = 0
    """Of these, tokens of requests that were looked up in the prefix cache."""
    cached_tokens: int = 0
    """Of these, tokens found there."""
    copied_tokens: int = 0
    """Of these, tokens in blocks that were cached with another end: copied, not shared."""
    generation_tokens: int = 0
    discarded_tokens: int = 0
    """Sampled behind the token that ended a request, because the next step had been planned by then: what one step
    yields at most per request, none where its length ends it."""
    computed_tokens: int = 0
    """Tokens run through the model, recomputation included."""
    draft_tokens: int = 0
    """Of these, drafts: tokens tried before they were known, as far as their steps have landed."""
    accepted_draft_tokens: int = 0
    """Of these, drafts that were right: each saved its request a step."""
    recomputed_tokens: int = 0
    """Of the computed tokens, those that had been computed before and were lost to preemption."""
    resumed_cached_tokens: int = 0
    """Tokens that preempted requests found in the prefix cache when they came back."""
    preemptions: int = 0
    loaded_tokens: dict[str, int] = field(default_factory=dict)
    """tier -> of the cached tokens, those that were first loaded from there."""
    finished: dict[FinishReason, int] = field(default_factory=lambda: dict.fromkeys(FinishReason, 0))
    """finish reason -> requests."""

    def as_dict(self) -> dict[str, float]:
        """name -> total; finished requests as `finished_<reason>`, loaded tokens as `<tier>_loaded_tokens`."""
        totals = {name: float(value) for name, value in vars(self).items() if not isinstance(value, dict)}
        totals |= {f"{tier}_loaded_tokens": float(count) for tier, count in self.loaded_tokens.items()}
        return totals | {f"finished_{reason}": float(count) for reason, count in self.finished.items()}
