"""A proposer that needs nothing but tokens, as the runner asks it."""

from collections.abc import Collection, Sequence

from octavo.decoding.speculation.proposer import DraftedRequest, Proposer
from octavo.execution.protocols import RanStep, SlotArrays


class TokensOnly:
    """An `octavo.execution.protocols.Proposer` over one of this room. It hears of a request when it is first asked
    about it, and of tokens when it is asked what comes behind them, and at the end: while nobody asks, neither costs
    anything."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._new: dict[int, DraftedRequest] = {}
        """[slot] of which it has not heard."""
        self._num_told: dict[int, int] = {}
        """[slot] tokens that it has been told, of those of which it has."""
        self._held: SlotArrays | None = None

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        self._new[slot] = request

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        if self._new.pop(slot, None) is not None:
            return
        try:
            if self._held is not None:
                self._tell(slot, self._held)
        finally:
            del self._num_told[slot]
            self._proposer.remove(slot)

    def propose(
        self, slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> list[Sequence[int]]:
        """See `octavo.execution.protocols.Proposer`."""
        self._held = held
        for slot in slots:
            if slot in self._new:
                self._proposer.add(slot, self._new[slot])
                self._num_told[slot] = len(self._new.pop(slot).token_ids)
            self._tell(slot, held)
        return [draft.likely(least_chance) for draft in self._proposer.propose(slots, most)]

    def ran(self, step: RanStep) -> Collection[int]:
        """See `octavo.execution.protocols.Proposer`. What came of it is read when it is needed."""
        return ()

    def close(self) -> None:
        """See `octavo.execution.protocols.Proposer`. What there is to release goes with it."""

    def _tell(self, slot: int, held: SlotArrays) -> None:
        told, known = self._num_told[slot], int(held.num_tokens[slot])
        if told < known:
            self._proposer.extend(slot, held.tokens[slot, told:known].tolist())
            self._num_told[slot] = known
