"""From what a proposer guesses to the drafts of a step."""

import logging
from collections.abc import Callable, Mapping, Sequence

from octavo.execution.protocols import Proposer, Sampler
from octavo.scheduling.plan import NewRequestData, StepPlan

log = logging.getLogger(__name__)


class Drafting:
    """A proposer that can do no harm: what it raises costs drafts, and what cannot be drawn is not run.

    A slot at which it has raised has no drafts until it holds another request, as it may have missed tokens.
    """

    def __init__(self, proposer: Proposer, sampler: Sampler) -> None:
        self._proposer = proposer
        self._sampler = sampler
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
        if slot in self._slots:
            self._slots.remove(slot)
            self._guard(slot, self._proposer.remove, slot)

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`."""
        if slot in self._slots:
            self._guard(slot, self._proposer.extend, slot, token_ids)

    def propose(self, plan: StepPlan, slots: Mapping[int, int]) -> dict[int, Sequence[int]]:
        """Drafts by place in the plan, where there are any, at most as many as planned. Asked once for a step: if it
        runs in parts, or again, it is with these.

        Args:
            slots: place -> slot of the requests that run.
        """
        drafts: dict[int, Sequence[int]] = {}
        for place, most in enumerate(plan.num_draft_tokens):
            slot = slots.get(place)
            if most > 0 and slot in self._slots:
                guessed = self._guess(slot, most)
                if guessed:
                    drafts[place] = guessed
        return drafts

    def _guess(self, slot: int, most: int) -> Sequence[int]:
        guessed: list[int] = []
        self._guard(slot, lambda: guessed.extend(self._proposer.propose(slot, most)[:most]))
        return guessed[: self._sampler.num_worth_running(slot, guessed)] if guessed else guessed

    def _guard(self, slot: int, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception:
            log.exception("the proposer failed at slot %d; its request goes on without drafts", slot)
            self.remove(slot)
