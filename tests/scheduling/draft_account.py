"""What an engine should say of its drafts, counted from what goes in and out of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.request.control import DraftFigures, EngineLoad
from octavo.request.outputs import RequestOutput, RequestStats
from octavo.scheduling.plan import StepPlan, StepResult


@dataclass
class Tally:
    """Drafts by how many tokens they had and how many of these were right; tokens that came and were kept."""

    by_length: Counter[int] = field(default_factory=Counter)
    by_right: Counter[int] = field(default_factory=Counter)
    num_kept: int = 0
    num_yields: int = 0
    """Outputs with tokens."""

    def add(self, num_drafted: int, num_right: int, num_kept: int) -> None:
        """A request's part of a step."""
        if num_drafted:
            self.by_length[num_drafted] += 1
            self.by_right[num_right] += 1
        self.num_kept += num_kept
        self.num_yields += num_kept > 0

    @property
    def num_drafts(self) -> int:
        return self.by_length.total()

    @property
    def num_drafted(self) -> int:
        return sum(length * count for length, count in self.by_length.items())

    @property
    def num_right(self) -> int:
        return sum(right * count for right, count in self.by_right.items())

    @property
    def mean_length(self) -> float | None:
        return 1 + self.num_right / self.num_drafts if self.num_drafts else None

    def figures(self) -> DraftFigures | None:
        length = self.mean_length
        return (
            None
            if length is None
            else DraftFigures(
                mean_acceptance_length=length,
                draft_tokens_by_position=self.drafted_at(),
                accepted_by_position=self.right_at(),
            )
        )

    def drafted_at(self) -> list[int]:
        """By position."""
        return [_beyond(place, self.by_length) for place in range(max(self.by_length, default=0))]

    def right_at(self) -> list[int]:
        """By position, as long as the other."""
        return [_beyond(place, self.by_right) for place in range(max(self.by_length, default=0))]


def _beyond(place: int, counts: Counter[int]) -> int:
    return sum(count for number, count in counts.items() if number > place)


class DraftAccount:
    """Follows plans, results and outputs of a harness."""

    def __init__(self) -> None:
        self._engine = Tally()
        self._by_request: dict[str, Tally] = defaultdict(Tally)
        self._num_known = 0
        """Tokens planned that were no drafts."""

    def arrived(self, request_id: str) -> None:
        """It begins with nothing, whoever had its id before."""
        self._by_request.pop(request_id, None)

    def issued(self, plan: StepPlan) -> None:
        drafts = plan.num_draft_tokens or (0,) * len(plan.request_ids)
        self._num_known += sum(count - most for count, most in zip(plan.num_scheduled_tokens, drafts, strict=True))

    def landed(self, plan: StepPlan, result: StepResult, outputs: Iterable[RequestOutput]) -> None:
        kept = {output.request_id: len(output.new_token_ids) for output in outputs if output.new_token_ids}
        drafted: Sequence[int] = result.num_draft_tokens or (0,) * len(plan.request_ids)
        for request_id, count, token_ids in zip(plan.request_ids, drafted, result.token_ids, strict=True):
            part = (count, max(0, len(token_ids) - 1), kept.get(request_id, 0))
            self._engine.add(*part)
            if request_id in kept:
                self._by_request[request_id].add(*part)

    def check(self, load: EngineLoad) -> None:
        """The engine's figures; and that no token has come from nowhere."""
        counters, tally = load.counters, self._engine
        assert counters["drafts"] == tally.num_drafts
        assert counters["draft_tokens"] == tally.num_drafted
        assert counters["accepted_draft_tokens"] == tally.num_right
        assert counters["generation_tokens"] == tally.num_kept == tally.num_yields + counters["saved_steps"]
        assert counters["draft_tokens"] == counters["saved_steps"] + counters["wasted_draft_tokens"]
        assert counters["saved_steps"] <= counters["accepted_draft_tokens"]
        assert counters["computed_tokens"] == self._num_known + tally.num_drafted
        assert load.drafts == tally.figures()

    def check_ledger(self, request_id: str, stats: RequestStats) -> None:
        """A request's own figures."""
        tally = self._by_request[request_id]
        assert stats.num_drafts == tally.num_drafts
        assert stats.num_draft_tokens == tally.num_drafted
        assert stats.num_accepted_draft_tokens == tally.num_right == sum(stats.num_accepted_by_position)
        assert stats.num_accepted_by_position == tally.right_at()
        assert stats.num_output_tokens == tally.num_kept == tally.num_yields + stats.num_saved_steps
        assert stats.num_draft_tokens == stats.num_saved_steps + stats.num_wasted_draft_tokens
        assert stats.mean_acceptance_length == tally.mean_length
