"""Monotone totals of the scheduler since its start."""

from dataclasses import dataclass, field

from octavo.request.control import DraftFigures
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
    drafts: int = 0
    """Times that a request had drafts in a step that has landed, whatever became of the request."""
    draft_tokens: int = 0
    """Of the computed tokens, those that were tried in these before they were known."""
    accepted_draft_tokens: int = 0
    """Of these, tokens that were right."""
    saved_steps: int = 0
    """Of these, tokens that became part of an answer: each came without a step of its own."""
    recomputed_tokens: int = 0
    """Of the computed tokens, those that had been computed before and were lost to preemption."""
    resumed_cached_tokens: int = 0
    """Tokens that preempted requests found in the prefix cache when they came back."""
    preemptions: int = 0
    stalls: int = 0
    """Steps that a running request sat out, for want of budget or of blocks: one for each of them in each."""
    forecasts: int = 0
    """Answers that ended by themselves and whose lengths had been foreseen."""
    forecast_error_tokens: int = 0
    """By how much they were longer or shorter than that, together."""
    loaded_tokens: dict[str, int] = field(default_factory=dict)
    """tier -> of the cached tokens, those that were first loaded from there."""
    finished: dict[FinishReason, int] = field(default_factory=lambda: dict.fromkeys(FinishReason, 0))
    """finish reason -> requests."""
    draft_tokens_by_position: list[int] = field(default_factory=list)
    """Entry i: of the draft tokens, those that stood behind i others of their draft."""
    accepted_by_position: list[int] = field(default_factory=list)
    """The same of the accepted ones. As long as the other."""

    @property
    def wasted_draft_tokens(self) -> int:
        """Rows that were run in vain: no token of an answer came of them."""
        return self.draft_tokens - self.saved_steps

    def drafts_ran(self, num_drafted: int, num_right: int) -> None:
        """A request had drafts in a step that has landed."""
        self.computed_tokens += num_drafted
        self.drafts += 1
        self.draft_tokens += num_drafted
        self.accepted_draft_tokens += num_right
        count_positions(self.draft_tokens_by_position, num_drafted, num_drafted)
        count_positions(self.accepted_by_position, num_drafted, num_right)

    def take_forecast(self, error_tokens: int | None) -> None:
        """An answer has ended; None: its length had not been foreseen."""
        if error_tokens is not None:
            self.forecasts += 1
            self.forecast_error_tokens += abs(error_tokens)

    def draft_figures(self) -> DraftFigures | None:
        """What is no plain total; None: there were no drafts."""
        if not self.drafts:
            return None
        return DraftFigures(
            mean_acceptance_length=1 + self.accepted_draft_tokens / self.drafts,
            draft_tokens_by_position=list(self.draft_tokens_by_position),
            accepted_by_position=list(self.accepted_by_position),
        )

    def as_dict(self) -> dict[str, float]:
        """name -> total; finished requests as `finished_<reason>`, loaded tokens as `<tier>_loaded_tokens`. Without
        what has a position."""
        totals = {name: float(value) for name, value in vars(self).items() if isinstance(value, int)}
        totals["wasted_draft_tokens"] = float(self.wasted_draft_tokens)
        totals |= {f"{tier}_loaded_tokens": float(count) for tier, count in self.loaded_tokens.items()}
        return totals | {f"finished_{reason}": float(count) for reason, count in self.finished.items()}


def count_positions(counts: list[int], length: int, stop: int) -> None:
    """Adds one at each of the positions `[0, stop)`; `counts` has at least `length` entries then, and `stop` at most as
    many as that."""
    if len(counts) < length:
        counts += [0] * (length - len(counts))
    for position in range(stop):
        counts[position] += 1
