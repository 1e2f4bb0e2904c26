"""What adaptive counts plan step by step: least chances, plans that hold, probes, rests."""

from itertools import pairwise

from octavo.scheduling.adaptive_draft_counts import HOLD, LEAST_CHANCE, AdaptiveDraftCounts
from octavo.scheduling.draft_costs import LONGEST_REST
from octavo.scheduling.draft_counts import PlannedDrafts

STEP_S = 0.1


class Machine:
    """A machine on which a step of some requests takes `STEP_S`, and each draft a share of that more."""

    def __init__(self, num_requests: int, share: float, counts: AdaptiveDraftCounts | None = None) -> None:
        self.counts = AdaptiveDraftCounts(16, 64) if counts is None else counts
        self.names = [f"{place}" for place in range(num_requests)]
        self._share = share

    def plan(self, most: int = 100) -> PlannedDrafts | None:
        """What is planned for a step; None: nobody was asked."""
        count = len(self.names)
        if not self.counts.worth_asking(count, count):
            return None
        return self.counts.plan_step(count, count, 64, [(name, most) for name in self.names])

    def run(self, planned: PlannedDrafts | None, chance: float, right: int) -> None:
        """A step of a proposer whose first guesses are right with a chance, which it knows, and that are so up to a
        place."""
        count, ran = len(self.names), 0
        for name, most in zip(self.names, planned.counts if planned else [], strict=bool(planned)):
            if planned is not None and most:
                runs = most if chance >= planned.least_chance else 0
                ran += runs
                self.counts.verified(name, most, runs, min(runs, right))
        self.counts.measured(count + ran, count, ran, STEP_S * (1 + self._share * ran))

    def go(self, steps: int, chance: float, right: int) -> list[PlannedDrafts | None]:
        """Steps with such a proposer, as they were planned."""
        plans = []
        for _ in range(steps):
            plans.append(self.plan())
            self.run(plans[-1], chance, right)
        return plans


def test_a_draft_must_be_as_likely_as_its_time_is_long() -> None:
    """Each draft takes a tenth of a step, in which four requests have four tokens: 0.4 of a token, or more of one the
    more tokens a step yields."""
    machine = Machine(4, 0.1)
    last = machine.go(200, chance=0.9, right=2)[-1]
    assert last is not None and sum(last.counts) > 0
    assert 0.4 < last.least_chance < 0.9
    cheap = Machine(1, 0.01).go(200, chance=0.9, right=2)[-1]
    assert cheap is not None and cheap.least_chance == LEAST_CHANCE


def test_what_a_draft_takes_with_some_requests_is_what_others_begin_from() -> None:
    counts = AdaptiveDraftCounts(16, 64)
    Machine(2, 0.2, counts).go(200, chance=0.9, right=1)
    plans = Machine(16, 0.2, counts).go(8, chance=0.5, right=1)
    first = next(plan for plan in plans if plan is not None)
    assert first.least_chance == 0.5, "half of 16 tokens * 0.5 * 0.2, which is more than a token and told as one"


def test_a_plan_holds_for_some_steps_of_the_same_requests() -> None:
    machine = Machine(2, 0.05)
    machine.go(300, chance=0.9, right=3)
    plans = machine.go(100, chance=0.9, right=3)
    held = [second for first, second in pairwise(plans) if first == second]
    assert len(held) > 100 * (HOLD - 1) / HOLD * 0.7
    machine.names = ["7", "8"]
    planned = machine.plan(most=1)
    assert planned is not None and max(planned.counts) <= 1


def test_a_plan_that_holds_keeps_to_what_requests_may_have() -> None:
    machine = Machine(2, 0.05)
    machine.go(300, chance=0.9, right=3)
    for _ in range(2 * HOLD):
        planned = machine.plan(most=2)
        assert planned is not None and max(planned.counts) <= 2
        machine.run(planned, 0.9, 3)


def test_where_nothing_pays_it_is_seldom_asked_and_hardly_anything_runs() -> None:
    machine = Machine(16, 0.06)
    machine.go(300, chance=0.1, right=0)
    plans = machine.go(320, chance=0.1, right=0)
    asked = [plan for plan in plans if plan is not None]
    assert 0 < len(asked) <= 320 / 8
    assert all(plan.least_chance > 0.1 for plan in asked), "so none of them runs"


def test_who_comes_behind_somebody_is_looked_at_soon() -> None:
    machine = Machine(16, 0.06)
    machine.go(600, chance=0.1, right=0)
    machine.counts.forget("3")
    plans = machine.go(LONGEST_REST, chance=0.1, right=0)
    assert plans[0] is not None and sum(plan is not None for plan in plans) >= 3


def test_a_text_that_turns_is_found_by_probes() -> None:
    machine = Machine(4, 0.02)
    machine.go(300, chance=0.1, right=0)
    plans = machine.go(400, chance=0.95, right=8)
    assert plans[-1] is not None and sum(plans[-1].counts) >= 8
