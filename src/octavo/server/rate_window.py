"""How much was used in the last minute: a sliding window in a fixed number of cells, which processes can share."""

from collections.abc import Iterator

WINDOW_S = 60
SLOTS_PER_S = 4
SLOTS = WINDOW_S * SLOTS_PER_S + 1
"""An amount is forgotten with its slot, so a quarter of a second late at most and never early:

    slot   s                                            s + SLOTS
           |--x-----|--------| ... |--------|--------|--y
              x is used at some time in slot s; it counts through slot s + SLOTS - 1, so until y, 60 s later or more
"""
CELLS = 2 * SLOTS
"""64-bit numbers that a window takes: which slot each cell holds, and the amount."""


class RateWindow:
    """Amounts used in any 60 seconds. The clock is an argument; it must be the same for all processes that share the
    cells, as `time.monotonic` is on one machine."""

    def __init__(self, limit: int, cells: memoryview) -> None:
        """
        Args:
            limit: most that may be used in any 60 seconds, positive.
            cells: `CELLS` numbers of type `q`, zero at first.
        """
        self.limit = limit
        self._slots, self._amounts = cells[:SLOTS], cells[SLOTS:CELLS]

    def used(self, now: float) -> int:
        """What counts against the limit."""
        return sum(amount for _, amount in self._live(now))

    def remaining(self, now: float) -> int:
        """What is left of the limit; 0 if more than that was used."""
        return max(0, self.limit - self.used(now))

    def add(self, amount: int, now: float) -> int:
        """Uses an amount, whether or not it fits; returns the slot, for `give_back`."""
        slot = int(now * SLOTS_PER_S)
        cell = slot % SLOTS
        if self._slots[cell] != slot:
            self._slots[cell], self._amounts[cell] = slot, 0
        self._amounts[cell] += amount
        return slot

    def give_back(self, amount: int, slot: int) -> None:
        """Undoes an `add`; what is forgotten already stays so."""
        if self._slots[slot % SLOTS] == slot:
            self._amounts[slot % SLOTS] -= amount

    def wait_s(self, amount: int, now: float) -> float:
        """Seconds until `amount` fits; 0 if it does now. More than the limit fits as soon as nothing else counts."""
        excess = self.used(now) + min(amount, self.limit) - self.limit
        wait = 0.0
        for slot, freed in sorted(self._live(now)):
            if excess <= 0:
                break
            excess, wait = excess - freed, self._end(slot) - now
        return wait

    def reset_s(self, now: float) -> float:
        """Seconds until nothing counts, if nothing more is used."""
        return max((self._end(slot) - now for slot, amount in self._live(now) if amount), default=0.0)

    def _live(self, now: float) -> Iterator[tuple[int, int]]:
        newest = int(now * SLOTS_PER_S)
        oldest = newest - SLOTS + 1
        return ((slot, self._amounts[cell]) for cell, slot in enumerate(self._slots) if oldest <= slot <= newest)

    def _end(self, slot: int) -> float:
        return (slot + SLOTS) / SLOTS_PER_S
