"""What drafts cost in steps of about one number of requests, and what may be lost by finding out."""

from octavo.scheduling.step_times import StepTimes

CREDIT_PER_STEP = 0.002
"""Share of the time that may be lost by trying."""
FIRST_CREDIT, MOST_CREDIT = 2.5, 20.0
"""Steps that may be lost by trying, on top of that, at first; most that are ever saved up."""
LEAST_CHARGE = 0.05
FIRST_PROBES, MOST_PROBES = 1.0, 4.0
"""The same for single drafts by which it is found out whether texts have changed, on an account of their own: what a
trial of a great number has cost must not hide that."""
FIRST_STEPS = 6
"""Steps without drafts before there are any: all else is weighed against these."""
WELL_KNOWN = 16
PATIENCE, LONGEST_REST = 4, 8
"""After so many times in a row that drafts were looked for and none ran that pays, they are not looked for in the next
step; when that is so once more in the next two, then four, and so on; most of them."""


def crowd_of(num_requests: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: steps with about as many requests are alike, others are not, as a
    request more costs more than a draft more (it has a context of its own)."""
    power = 1 << (num_requests - 1).bit_length()
    return power * 3 // 4 if power > 2 and num_requests <= power * 3 // 4 else power


class DraftCosts(StepTimes):
    """Times of steps, and an account of those that were tried in order to know them."""

    def __init__(self, num_requests: int, most: int) -> None:
        """See `StepTimes`."""
        super().__init__(num_requests, most)
        self._credit = FIRST_CREDIT
        """Steps without drafts that may be lost."""
        self._owed: float | None = None
        """Under trial: relative time that the best known way takes for the tokens expected of it."""
        self._probe_credit = FIRST_PROBES
        self._probes = False
        """Whether the step under way is one for finding out about texts."""
        self._in_vain = self._rest = 0
        self._pays = False
        """Whether drafts were found to pay when they were looked for last."""
        self._judged: list[float] | None = None
        self._judged_for = 0
        self._could_pay = False
        """Whether drafts could, in these times and for so many requests."""

    def rests(self) -> bool:
        """Whether to plan a step without drafts and without looking for any, since there were none for long."""
        self._rest -= 1
        if self._rest >= 0:
            self._earn()
        return self._rest >= 0

    def looked(self, *, pays: bool) -> int:
        """Takes note of whether drafts were found to pay in a step; returns for how many steps that is to do."""
        self._in_vain += 1
        self._pays = pays
        self._rest = min(LONGEST_REST, 2 ** (self._in_vain - PATIENCE) if self._in_vain >= PATIENCE else 0)
        return 1 + self._rest

    def somebody_left(self) -> None:
        """Somebody else may come, of whom nothing is known: drafts are looked for at once, rests are short again."""
        self._in_vain, self._rest = min(self._in_vain, PATIENCE - 1), 0

    def rest_at_most(self, num_steps: int) -> None:
        """Shortens the rest under way: there is something to look for."""
        self._rest = min(self._rest, num_steps)

    @property
    def may_probe(self) -> bool:
        """Whether single drafts may be run to find out about texts."""
        return self._probe_credit > 0

    def begin_probe(self) -> None:
        """The step that is planned now runs such drafts."""
        self._probes = True

    @property
    def may_try(self) -> bool:
        """Whether there is credit, and no trial under way."""
        return self._credit > 0 and self._owed is None

    def begin_trial(self, owed: float) -> None:
        """The step that is planned now is one.

        Args:
            owed: relative time that the best known way takes for the tokens that are expected of it.
        """
        self._owed = owed

    def measured(self, num_drafts: int, seconds: float) -> None:
        """Takes note of a step; what it has lost, if it was a trial, is charged."""
        self.add(num_drafts, seconds)
        if num_drafts and self._pays:
            self._in_vain = 0
        self._earn()
        if self._probes:
            times = self.sure()
            self._probe_credit -= times[num_drafts] / times[0] - 1
            self._probes = False
        if self._owed is not None:
            times = self.sure()
            self._credit -= max(LEAST_CHARGE, (times[num_drafts] - self._owed) / times[0])
            self._owed = None

    def _earn(self) -> None:
        """A step more, measured or not."""
        self._probe_credit = min(MOST_PROBES, self._probe_credit + CREDIT_PER_STEP)
        self._credit = min(MOST_CREDIT, self._credit + CREDIT_PER_STEP)

    def could_pay(self, num_requests: int, margin: float) -> bool:
        """Whether some number of drafts would pay if all of them were right, as far as is known."""
        if self.num_times(0) < FIRST_STEPS:
            return False
        times = self.hopeful()
        if times is not self._judged or num_requests != self._judged_for:
            per_token = times[0] / ((1 + margin) * num_requests)
            self._judged, self._judged_for = times, num_requests
            self._could_pay = any(s < per_token * (num_requests + count) for count, s in enumerate(times))
        return self._could_pay

    def base_is_due(self, age: float) -> bool:
        """Whether a step without drafts is to be run to know its time: the last one was more than `age` steps ago,
        sooner while there have been few."""
        return self.age(0) > age * min(1.0, self.num_times(0) / WELL_KNOWN)
