"""From what a proposer guesses to the drafts of a step."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from octavo.execution.isolation import isolate
from octavo.execution.protocols import Proposer, RanStep, Sampler, SlotArrays
from octavo.scheduling.plan import NewRequestData, StepPlan

log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    place: int
    """In the plan."""
    slot: int
    most: int


class Drafting:
    """A proposer that can do no harm: what it raises costs drafts, and what cannot be drawn is not run.

    A slot at which it has raised has no drafts until it holds another request, as it may have missed tokens.
    """

    def __init__(self, proposer: Proposer, sampler: Sampler, held: SlotArrays) -> None:
        self._proposer = proposer
        self._sampler = sampler
        self._held = held
        self._slots: set[int] = set()
        """Those that the proposer knows."""

    def add(self, slot: int, request: NewRequestData) -> None:
        """See `Proposer`."""
        try:
            self._proposer.add(slot, request)
        except Exception:
            log.exception("the proposer failed at taking in request %s; it goes on without drafts", request.request_id)
        else:
            self._slots.add(slot)

    def remove(self, slot: int) -> None:
        """See `Proposer`; no-op for a slot that it does not know."""
        if slot not in self._slots:
            return
        self._slots.remove(slot)
        try:
            self._proposer.remove(slot)
        except Exception:
            log.exception("the proposer failed at letting go of slot %d", slot)

    def propose(self, plan: StepPlan, slots: Mapping[int, int]) -> dict[int, Sequence[int]]:
        """Drafts by place in the plan, where there are any, at most as many as planned. Asked once for a step: if it
        runs in parts, or again, it is with these.

        Args:
            slots: place -> slot of the requests that run.
        """
        asked = [
            _Asked(place, slots[place], most)
            for place, most in enumerate(plan.num_draft_tokens)
            if most > 0 and place in slots and slots[place] in self._slots
        ]
        drafts: dict[int, Sequence[int]] = {}

        def attempt(some: Sequence[int]) -> None:
            drafts.update(self._guess([asked[index] for index in some], plan.least_draft_chance))

        def give_up(index: int, error: Exception) -> None:
            slot = asked[index].slot
            log.error("the proposer failed at slot %d; its request goes on without drafts", slot, exc_info=error)
            self.remove(slot)

        if asked:
            isolate(range(len(asked)), attempt, give_up)
        return drafts

    def ran(self, step: RanStep) -> None:
        """See `Proposer`."""
        lost: Collection[int] = step.slots
        try:
            lost = self._proposer.ran(step)
        except Exception:
            log.exception("the proposer failed at what came of a step; all its requests go on without drafts")
        for slot in lost:
            self.remove(slot)

    def close(self) -> None:
        """See `Proposer`."""
        self._slots.clear()
        try:
            self._proposer.close()
        except Exception:
            log.exception("the proposer failed at its end")

    def _guess(self, asked: Sequence[_Asked], least_chance: float) -> dict[int, Sequence[int]]:
        """What of the guesses for these can be drawn."""
        slots, most = [one.slot for one in asked], [one.most for one in asked]
        guesses = self._proposer.propose(slots, most, least_chance, self._held)
        drafts: dict[int, Sequence[int]] = {}
        for (place, slot, room), guessed in zip(asked, guesses, strict=True):
            worth = self._sampler.num_worth_running(slot, guessed[:room]) if guessed else 0
            if worth:
                drafts[place] = guessed[:worth]
        return drafts
