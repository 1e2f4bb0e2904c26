"""Draft counts from how often drafts are right and from what they cost."""

from collections.abc import Sequence

from octavo.scheduling.acceptance import Acceptance, Chances
from octavo.scheduling.draft_costs import DraftCosts, crowd_of
from octavo.scheduling.draft_counts import Candidate
from octavo.scheduling.draft_order import Expectation, in_order

MARGIN, DEAR = 0.02, 0.02
"""By how much a step with drafts must be better than it seems: by a share of a step, and of the time that they take."""
BASE_AGE = 32
"""Steps after which one without drafts is due where drafts hardly pay; r**3 times as many where they make answers r
times as fast: then less hangs on it, and it costs more."""
HOPE = 0.03
"""By how much something untried may be better than the best known, to be tried."""
OPTIMISM = 0.1
"""By how much more tokens may be hoped for than are expected of drafts."""
PROBE_AGE = 4
"""Steps without drafts after which a request may have one, to see whether its text has become one that repeats."""
AT_FIRST = Chances(0.9, 0.6, 0.9, 0.7)
"""What is expected of a proposer of which nothing is known."""
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
        self._most = most_per_request
        self._costs: dict[int, DraftCosts] = {}
        self._everybody = Acceptance(LONG_MEMORY)
        self._requests: dict[str, Acceptance] = {}

    def worth_asking(self, num_tokens: int, num_requests: int) -> bool:
        """See `DraftCounts`. Steps that run prompts have no drafts."""
        costs = self._costs.get(crowd_of(num_requests))
        if costs is None or num_tokens != num_requests or costs.rests():
            return False
        return costs.could_pay(num_requests, MARGIN)

    def plan_step(
        self, num_tokens: int, num_requests: int, budget: int, candidates: Sequence[Candidate]
    ) -> Sequence[int]:
        """See `DraftCounts`."""
        costs = self._costs[crowd_of(num_requests)]
        everybody = self._everybody.chances(AT_FIRST)
        records = [self._requests.setdefault(request_id, Acceptance(MEMORY)) for request_id, _ in candidates]
        chances = [record.chances(everybody) for record in records]
        most = [min(most, self._most) for _, most in candidates]
        order = list(in_order(num_requests, budget, list(zip(most, chances, strict=True))))
        counts = [0] * len(candidates)
        planned = _how_many(costs, num_requests, order)
        if planned is None:
            _probe(costs, num_requests, records, chances, counts)
        else:
            for step in order[:planned]:
                counts[step.place] += 1
        num_steps = costs.found(sum(counts))
        for record, count in zip(records, counts, strict=True):
            record.idle += 0 if count else num_steps
        return counts

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """See `DraftCounts`."""
        record = self._requests.get(request_id)
        if record is not None:
            record.note(num_planned, num_drafted, num_right)
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


def _how_many(costs: DraftCosts, num_requests: int, order: Sequence[Expectation]) -> int | None:
    """How many drafts of that order to plan; None: none pays, but it may be found out if one would."""
    base = num_requests / costs.sure()[0]
    best, rate = _best(costs, base, order)
    if best and costs.base_is_due(BASE_AGE * (rate / base) ** 3):
        return 0
    if costs.may_try:
        hoped = _hoped(costs, num_requests, rate * (1 + HOPE), order)
        if not hoped:
            return best or None
        costs.begin_trial(order[hoped - 1].tokens / rate)
        return hoped
    return best


def _best(costs: DraftCosts, base: float, order: Sequence[Expectation]) -> tuple[int, float]:
    """The number of drafts with most tokens per second, in what is known, and how many these are."""
    times = costs.sure()
    margin = (MARGIN + costs.doubt()) * times[0]
    best, best_rate = 0, base
    for count, step in enumerate(order, 1):
        seconds = step.time(times)
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


def _probe(
    costs: DraftCosts,
    num_requests: int,
    records: Sequence[Acceptance],
    chances: Sequence[Chances],
    counts: list[int],
) -> None:
    """Gives one draft to a request that has had none for some time: to the one that seems best, or has waited long."""
    idle = [place for place, record in enumerate(records) if record.idle >= PROBE_AGE]
    if idle:
        place = max(idle, key=lambda i: chances[i].first_right / chances[i].first_runs + records[i].idle / 500)
        counts[place] = 1
        costs.begin_trial(costs.sure()[0] * (1 + chances[place].first_right / num_requests))
