"""Draft counts from how often drafts are right and from what they cost."""

from collections.abc import Sequence

from octavo.scheduling.acceptance import Acceptance, Chances
from octavo.scheduling.draft_counts import Candidate
from octavo.scheduling.draft_order import Expectation, in_order
from octavo.scheduling.step_times import StepTimes

MARGIN = 0.02
"""By how much a step with drafts must be better than it seems."""
HOPE = 0.03
"""By how much something untried may be better than what is known, to be tried."""
TRIALS = 0.003
"""Share of the time that may be lost by trying."""
FIRST_TRIALS = 4.0
"""Steps that may be lost by trying at first, on top of that."""
MOST_TRIALS = 20.0
FIRST_BASE = 6
BASE_AGE = 32
"""Steps after which one without drafts is due, where drafts hardly pay; where they do, later."""
PROBE_AGE = 4
"""Steps without drafts after which a request may have one to see whether they have become better."""
OPTIMISM = 0.1
START = Chances(0.9, 0.6, 0.9, 0.7)
"""Before anything is known."""
LONG_MEMORY, MEMORY = 0.995, 0.97
"""Of everybody's outcomes, and of one request's."""


def _crowd_of(num_requests: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: steps with about as many requests are alike."""
    power = 1 << (num_requests - 1).bit_length()
    return power * 3 // 4 if power > 2 and num_requests <= power * 3 // 4 else power


class _Crowd:
    """What is known of steps with about the same number of requests."""

    def __init__(self, num_requests: int, most: int) -> None:
        self.times = StepTimes(num_requests, most)
        self.credit = FIRST_TRIALS
        """Steps without drafts that may be lost by trying."""
        self.owed: float | None = None
        """A step is under way to try something; seconds that the best known way takes for what is expected of it."""

    def measured(self, num_drafts: int, seconds: float) -> None:
        self.times.add(num_drafts, seconds)
        self.credit = min(MOST_TRIALS, self.credit + TRIALS)
        if self.owed is not None:
            times = self.times.sure()
            self.credit -= max(0.01, (times[num_drafts] - self.owed) / times[0])
            self.owed = None


class AdaptiveDraftCounts:
    """`DraftCounts` that looks for the most tokens per second of the whole step."""

    def __init__(self, most_per_request: int, most_per_step: int) -> None:
        self.most_per_step = most_per_step
        self._most = most_per_request
        self._crowds: dict[int, _Crowd] = {}
        self._everybody = Acceptance(LONG_MEMORY)
        self._requests: dict[str, Acceptance] = {}

    def worth_asking(self, num_tokens: int, num_requests: int) -> bool:
        """See `DraftCounts`. Steps that run prompts have no drafts, nor have the first of a size."""
        crowd = self._crowds.get(_crowd_of(num_requests))
        if crowd is None or num_tokens != num_requests or crowd.times.num_times(0) < FIRST_BASE:
            return False
        times = crowd.times.hopeful()
        least = times[0] * (1 + MARGIN) / num_requests
        return any(seconds < least * (num_requests + count) for count, seconds in enumerate(times) if count)

    def plan_step(
        self, num_tokens: int, num_requests: int, budget: int, candidates: Sequence[Candidate]
    ) -> Sequence[int]:
        """See `DraftCounts`."""
        crowd = self._crowds[_crowd_of(num_requests)]
        everybody = self._everybody.chances(START)
        records = [self._requests.setdefault(name, Acceptance(MEMORY)) for name, _ in candidates]
        able = [
            (min(most, self._most), record.chances(everybody))
            for (_, most), record in zip(candidates, records, strict=True)
        ]
        order = list(in_order(num_requests, budget, able))
        counts = [0] * len(candidates)
        for step in order[: self._how_many(crowd, num_requests, order)]:
            counts[step.place] += 1
        if not any(counts) and crowd.owed is None:
            self._probe(crowd, num_requests, records, able, counts)
        for record, count in zip(records, counts, strict=True):
            if not count:
                record.idle += 1
        return counts

    def _how_many(self, crowd: _Crowd, num_requests: int, order: Sequence[Expectation]) -> int:
        sure, hopeful = crowd.times.sure(), crowd.times.hopeful()
        base = num_requests / sure[0]
        margin = (MARGIN + crowd.times.doubt()) * sure[0]
        best, best_rate, hoped, hoped_rate = 0, base, 0, base
        for count, step in enumerate(order, 1):
            seconds = step.time(sure)
            rate = step.tokens / (seconds + margin * min(1.0, step.high) * step.chance)
            if rate > best_rate:
                best, best_rate = count, rate
            rate = (step.tokens + OPTIMISM * (step.tokens - num_requests)) / step.time(hopeful)
            if rate > hoped_rate * 1.01:
                hoped, hoped_rate = count, rate
        gain = best_rate / base
        if best and crowd.times.age(0) > BASE_AGE * gain**3 * min(1.0, crowd.times.num_times(0) / 16):
            return 0
        if crowd.credit <= 0:
            return best
        if hoped_rate > best_rate * (1 + HOPE):
            crowd.owed = order[hoped - 1].tokens / best_rate
            return hoped
        return best

    def _probe(self, crowd, num_requests, records, able, counts) -> None:
        if crowd.credit <= 0:
            return

        def promise(place):
            chances = able[place][1]
            return chances.first_right / chances.first_runs + records[place].idle / 500

        places = [place for place, record in enumerate(records) if record.idle >= PROBE_AGE]
        if places:
            place = max(places, key=promise)
            counts[place] = 1
            crowd.owed = crowd.times.sure()[0] * (1 + able[place][1].first_right / num_requests)

    def verified(self, request_id: str, num_planned: int, num_drafted: int, num_right: int) -> None:
        """See `DraftCounts`."""
        record = self._requests.get(request_id)
        if record is not None:
            record.note(num_planned, num_drafted, num_right)
        self._everybody.note(num_planned, num_drafted, num_right)

    def measured(self, num_tokens: int, num_requests: int, num_drafts: int, seconds: float) -> None:
        """See `DraftCounts`. Steps that ran prompts tell nothing here."""
        if num_tokens - num_drafts == num_requests:
            size = _crowd_of(num_requests)
            crowd = self._crowds.get(size)
            if crowd is None:
                crowd = self._crowds[size] = _Crowd(size, self.most_per_step)
            crowd.measured(num_drafts, seconds)

    def forget(self, request_id: str) -> None:
        """See `DraftCounts`."""
        self._requests.pop(request_id, None)
