"""How many drafts of a request run, and how many of these are right: estimates that forget."""

from typing import NamedTuple

MOST_IDLE = 200
FADING = [0.98**steps for steps in range(MOST_IDLE + 1)]
"""[steps in which a request had no drafts] -> what its record still weighs."""
FIRST_WEIGHT, NEXT_WEIGHT = 6.0, 24.0
"""Outcomes that what is known of everybody counts for."""


class Chances(NamedTuple):
    """Of a chain of drafts: that the first one runs, is right; that one behind one that ran runs; that one behind one
    that was right is right."""

    first_runs: float
    first_right: float
    next_runs: float
    next_right: float


class Acceptance:
    """What came of a request's drafts, or of everybody's.

    A proposer may have nothing, or less than was planned: then fewer rows run, and nothing is gained nor lost. So
    these are told apart: what runs costs, what is right pays.
    """

    __slots__ = (
        "_memory",
        "first_ran",
        "first_right",
        "first_tried",
        "idle",
        "next_ran",
        "next_reached",
        "next_right",
        "next_tried",
    )

    def __init__(self, memory: float) -> None:
        """
        Args:
            memory: what earlier outcomes weigh when a step brings new ones.
        """
        self._memory = memory
        self.first_tried = self.first_ran = self.first_right = 0.0
        self.next_tried = self.next_right = 0.0
        self.next_reached = self.next_ran = 0.0
        self.idle = 0

    def note(self, num_planned: int, num_drafted: int, num_right: int) -> None:
        """Takes note of what came of the drafts of one step."""
        keep = self._memory * FADING[min(self.idle, MOST_IDLE)]
        self.idle = 0
        self.first_tried = self.first_tried * keep + 1
        self.first_ran = self.first_ran * keep + (num_drafted > 0)
        self.first_right = self.first_right * keep + (num_right > 0)
        if num_planned > 1 and num_drafted:
            self.next_reached = self.next_reached * keep + min(num_planned, num_drafted + 1) - 1
            self.next_ran = self.next_ran * keep + num_drafted - 1
        if num_planned > 1 and num_right:
            self.next_tried = self.next_tried * keep + min(num_planned, num_right + 1) - 1
            self.next_right = self.next_right * keep + num_right - 1

    def chances(self, prior: Chances) -> Chances:
        """What is to be expected, where everybody's chances are `prior`."""
        ran, right, more, further = prior
        keep = FADING[self.idle] if self.idle < MOST_IDLE else FADING[MOST_IDLE]
        first = self.first_tried * keep + FIRST_WEIGHT
        return Chances(
            (self.first_ran * keep + FIRST_WEIGHT * ran) / first,
            (self.first_right * keep + FIRST_WEIGHT * right) / first,
            (self.next_ran * keep + NEXT_WEIGHT * more) / (self.next_reached * keep + NEXT_WEIGHT),
            (self.next_right * keep + NEXT_WEIGHT * further) / (self.next_tried * keep + NEXT_WEIGHT),
        )
