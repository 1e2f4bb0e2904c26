"""Draft counts from how often drafts are right and from what they cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from octavo.scheduling.acceptance import Acceptance, Chances
from octavo.scheduling.draft_costs import DraftCosts, crowd_of
from octavo.scheduling.draft_counts import Candidate, PlannedDrafts
from octavo.scheduling.draft_order import Expectation, in_order
from octavo.scheduling.step_times import REACH

MARGIN, DEAR = 0.03, 0.02
"""By how much a step with drafts must be better than it seems: by a share of a step, and of the time that they take."""
PLANNING_S, PLANNING_EACH_S = 0.00015, 0.00003
"""What it takes to plan drafts in a step and to take note of what came of them, and for each request beside: it adds to
the time of a step, run or not. As it is in Python this differs little between machines."""
BASE_AGE = 32
"""Steps after which one without drafts is due where drafts hardly pay; r**3 times as many where they make answers r
times as fast: then less hangs on it, and it costs more."""
HOPE = 0.03
"""By how much something untried may be better than the best known, to be tried."""
OPTIMISM = 0.1
"""By how much more tokens may be hoped for than are expected of drafts."""
LEAST_CHANCE, FIRST_CHANCE = 0.15, 0.3
"""Of a draft to be right, at least: however little it seems to take, and where nothing is known of that."""
HOPED_RISE = 0.5
"""Of the time of a draft with about as many requests, what it may be hoped to take with others."""
LEAST_RIGHT = 0.08
"""Of drafts that run so many must be right for them to be thought of, at least: no rows are as cheap."""
HOLD = 4
"""Steps for which a plan holds that finds nothing out, while the requests are the same: planning takes time, too."""
PROBE_AGE, PROBES = 4, 8
"""Steps without drafts after which a request may have one, to see whether its text has become one that repeats; most of
these in a step."""
AT_FIRST = Chances(0.9, 0.6, 0.9, 0.7)
"""What is expected of a proposer of which nothing is known."""
PRUDENCE = 0.5
"""How far from each other requests are thought to be, in the chance of a draft to be right: as a share of the greatest
variance that goes with the mean."""
LONG_MEMORY, MEMORY = 0.995, 0.97
"""What outcomes of everybody, and of one request, weigh when the next is known."""


class AdaptiveDraftCounts:
    """`DraftCounts` that looks for the most tokens per second of the whole step.

    Drafts are put in order, those first of which most is expected per row that runs; of all beginnings of this order
    that one is planned which yields most in its time, which passes over stairs in the time. Drafts must pay in what is
    known; a small share of the time (`DraftCosts.credit`) goes into finding out what is not: numbers of drafts that
    have not run, and requests that have become better. Times of steps decide, so counts differ between runs. Tokens do
    not, as they never depend on counts.
    """

    def __init__(self, most_per_request: int, most_per_step: int) -> None:
        self.most_per_step = most_per_step
        self.is_curious = True
        self._most = most_per_request
        self._costs: dict[int, DraftCosts] = {}
        self._everybody = Acceptance(LONG_MEMORY)
        self._requests: dict[str, Acceptance] = {}
        self._plan = _Plan(0, (), PlannedDrafts((), 1.0), 0)

    def worth_asking(self, num_tokens: int, num_requests: int) -> bool:
        """See `DraftCounts`. Steps that run prompts have no drafts."""
        self.is_curious = True
        costs = self._costs.get(crowd_of(num_requests))
        if costs is None or num_tokens != num_requests:
            return False
        self.is_curious = not costs.rests()
        if not self.is_curious:
            return False
        return costs.could_pay(num_requests, MARGIN)

    def plan_step(
        self, num_tokens: int, num_requests: int, budget: int, candidates: Sequence[Candidate]
    ) -> PlannedDrafts:
        """See `DraftCounts`."""
        if self._plan.holds(num_requests, budget, candidates):
            return self._plan.again(candidates)
        costs = self._costs_of(num_requests)
        records = [self._record_of(request_id) for request_id, _ in candidates]
        order = self._in_order(costs, num_requests, budget, candidates, records)
        choice = _choose(costs, num_requests, order)
        counts = [0] * len(candidates)
        for step in order[: choice.count]:
            counts[step.place] += 1
        if choice.may_probe:
            _probe(costs, records, counts)
        hold = HOLD - 1 if choice.holds and choice.count else 0
        num_steps = costs.looked(pays=choice.pays) + hold
        for record, count in zip(records, counts, strict=True):
            record.idle += 0 if count else num_steps
        planned = PlannedDrafts(counts, _least_chance(costs, sum(counts), choice))
        self._plan = _Plan(num_requests, candidates, planned, hold)
        return planned

    def _in_order(
        self,
        costs: DraftCosts,
        num_requests: int,
        budget: int,
        candidates: Sequence[Candidate],
        records: Sequence[Acceptance],
    ) -> Sequence[Expectation]:
        """All drafts that may be planned, those first of which most is expected."""
        everybody = self._everybody.chances(AT_FIRST)
        everybody = everybody._replace(first_right=_for_a_new_one(everybody.first_right))
        chances = [record.chances(everybody) for record in records]
        chains = [(min(most, self._most), each) for (_, most), each in zip(candidates, chances, strict=True)]
        return list(in_order(num_requests, budget, chains, _least_right(costs, num_requests)))

    def _record_of(self, request_id: str) -> Acceptance:
        record = self._requests.get(request_id)
        if record is None:
            record = self._requests[request_id] = Acceptance(MEMORY)
        return record

    def _costs_of(self, num_requests: int) -> DraftCosts:
        crowd = crowd_of(num_requests)
        costs = self._costs[crowd]
        if costs.seconds_per_draft() is None:
            known = {other: seconds for other, at in self._costs.items() if (seconds := at.seconds_per_draft())}
            if known:
                nearest = min(known, key=lambda other: abs(log(other / crowd)))
                costs.expect_rise(HOPED_RISE * known[nearest])
        return costs

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """See `DraftCounts`."""
        record = self._requests.get(request_id)
        if record is not None:
            record.note(num_planned, num_drafted, num_right)
            if num_right:  # more may be; a request is asked again after so many steps
                self._costs[crowd_of(self._plan.num_requests)].rest_at_most(PROBE_AGE - 1)
        self._everybody.note(num_planned, num_drafted, num_right)

    def measured(self, num_tokens: int, num_requests: int, num_drafts: int, seconds: float) -> None:
        """See `DraftCounts`. Steps that ran prompts tell nothing here."""
        if num_tokens - num_drafts == num_requests:
            crowd = crowd_of(num_requests)
            costs = self._costs.get(crowd)
            if costs is None:
                costs = self._costs[crowd] = DraftCosts(crowd, self.most_per_step)
            costs.measured(num_drafts, seconds)

    def forget(self, request_id: str) -> None:
        """See `DraftCounts`."""
        self._requests.pop(request_id, None)
        for costs in self._costs.values():
            costs.somebody_left()


class _Plan:
    """What was planned last."""

    def __init__(
        self, num_requests: int, candidates: Sequence[Candidate], planned: PlannedDrafts, num_steps: int
    ) -> None:
        self.num_requests = num_requests
        self._names = [name for name, _ in candidates]
        self._planned = planned
        self._num_drafts = sum(planned.counts)
        self._num_steps = num_steps

    def holds(self, num_requests: int, budget: int, candidates: Sequence[Candidate]) -> bool:
        """Whether it still does for these."""
        if self._num_steps <= 0 or num_requests != self.num_requests or budget < self._num_drafts:
            return False
        return [name for name, _ in candidates] == self._names

    def again(self, candidates: Sequence[Candidate]) -> PlannedDrafts:
        """The same once more, as far as requests may have as many."""
        self._num_steps -= 1
        counts = [min(count, most) for count, (_, most) in zip(self._planned.counts, candidates, strict=True)]
        return PlannedDrafts(counts, self._planned.least_chance)


@dataclass(frozen=True)
class _Choice:
    count: int
    """Drafts to plan."""
    rate: float
    """Tokens per time that are expected of the best that is known."""
    pays: bool
    """Whether the best that is known has drafts."""
    holds: bool = True
    """Whether nothing is to be found out by it."""
    may_probe: bool = False
    """Whether it may be found out if requests have become better."""


def _choose(costs: DraftCosts, num_requests: int, order: Sequence[Expectation]) -> _Choice:
    """How many drafts of that order to plan."""
    base = num_requests / costs.sure()[0]
    best, rate = _best(costs, base, order)
    pays = best > 0
    if pays and costs.base_is_due(BASE_AGE * (rate / base) ** 3):
        return _Choice(0, rate, pays, holds=False)
    hoped = _hoped(costs, num_requests, rate * (1 + HOPE), order) if costs.may_try else 0
    if hoped in (0, best):
        return _Choice(best, rate, pays, may_probe=not pays and costs.may_probe)
    costs.begin_trial(order[hoped - 1].tokens / rate)
    return _Choice(hoped, rate, pays, holds=False)


def _for_a_new_one(right: float) -> float:
    """The chance with which a request is taken up of which nothing is known, where everybody's is `right`: less, as
    drafts for those whose text does not repeat must not cost what they bring others."""
    return right - PRUDENCE * right * (1 - right)


def _least_right(costs: DraftCosts, num_requests: int) -> float:
    """Of drafts that run, how many must be right for them to be thought of: half of what would pay, once that is
    known."""
    if not costs.is_known:
        return LEAST_RIGHT
    return max(LEAST_RIGHT, costs.rise(REACH) / costs.sure()[0] * num_requests / 2)


def _least_chance(costs: DraftCosts, num_drafts: int, choice: _Choice) -> float:
    """What a draft must bring, as the time that it takes would bring so many tokens in other ways. Half of that where
    something is to be found out or hardly anything is known: what seemed dear once must be able to run again."""
    rise = costs.rise(max(num_drafts, REACH)) or costs.least_rise
    price = min(1.0, rise * choice.rate * (1 + DEAR)) if rise else FIRST_CHANCE
    return max(LEAST_CHANCE, price if choice.pays and choice.holds and costs.is_known else price * HOPED_RISE)


def _best(costs: DraftCosts, base: float, order: Sequence[Expectation]) -> tuple[int, float]:
    """The number of drafts with most tokens per second, in what is known, and how many these are."""
    times = costs.sure()
    margin = (MARGIN + costs.doubt()) * times[0]
    planning, each = costs.relative(PLANNING_S), costs.relative(PLANNING_EACH_S)
    requests: set[int] = set()
    best, best_rate = 0, base
    for count, step in enumerate(order, 1):
        requests.add(step.place)
        seconds = step.time(times) + planning + each * len(requests)
        seconds += DEAR * (seconds - times[0]) + margin * step.chance * min(1.0, step.high)
        rate = step.tokens / seconds
        if rate > best_rate:
            best, best_rate = count, rate
    return best, best_rate


def _hoped(costs: DraftCosts, num_requests: int, least: float, order: Sequence[Expectation]) -> int:
    """The number of drafts that could yield most tokens per second, and more than `least`; 0: none. Of those that are
    about as good the smallest, as hopes are higher the farther from what is known."""
    times = costs.hopeful()
    best, best_rate = 0, least
    for count, step in enumerate(order, 1):
        tokens = step.tokens + OPTIMISM * (step.tokens - num_requests)
        rate = tokens / step.time(times)
        if rate > best_rate:
            best, best_rate = count, rate * 1.01
    return best


def _probe(costs: DraftCosts, records: Sequence[Acceptance], counts: list[int]) -> None:
    """Gives a draft to requests that have had none for longest, if there are any; only likely ones will be run."""
    idle = sorted(
        (place for place, record in enumerate(records) if record.idle >= PROBE_AGE),
        key=lambda place: -records[place].idle,
    )[: min(PROBES, costs.most)]
    for place in idle:
        counts[place] = 1
    if idle:
        costs.begin_probe()
