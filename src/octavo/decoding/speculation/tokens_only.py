"""A proposer that needs nothing but tokens, as the runner asks it."""

import logging
from collections.abc import Collection, Sequence

from octavo.decoding.speculation.proposer import DraftedRequest, Proposer
from octavo.execution.protocols import RanStep, SlotArrays

log = logging.getLogger(__name__)


class TokensOnly:
    """An `octavo.execution.protocols.Proposer` over one of this room: it hears which tokens came."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._slots: set[int] = set()

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        self._proposer.add(slot, request)
        self._slots.add(slot)

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        self._slots.remove(slot)
        self._proposer.remove(slot)

    def propose(self, slots: Sequence[int], most: Sequence[int], held: SlotArrays) -> list[Sequence[int]]:
        """See `octavo.execution.protocols.Proposer`."""
        return [draft.token_ids for draft in self._proposer.propose(slots, most)]

    def ran(self, step: RanStep) -> Collection[int]:
        """See `octavo.execution.protocols.Proposer`. A slot at which the proposer fails is lost, and no other."""
        lost: list[int] = []
        for slot, token_ids in step.drawn.items():
            if slot in self._slots:
                try:
                    self._proposer.extend(slot, token_ids)
                except Exception:
                    log.exception("the proposer failed at the tokens of slot %d", slot)
                    lost.append(slot)
        return lost

    def close(self) -> None:
        """See `octavo.execution.protocols.Proposer`. What there is to release goes with it."""
