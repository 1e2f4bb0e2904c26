"""Which slots of a medium are free."""

from collections.abc import Collection
from heapq import heappop, heappush


class FreeSlots:
    """Free slots, the lowest of which is taken first.

    Those that were never taken are not listed but counted: a large medium of small blocks has hundreds of millions.
    Not for several threads at one time.
    """

    def __init__(self, num_slots: int, taken: Collection[int] = ()) -> None:
        """`taken`: slots below `num_slots` that are not free."""
        self._num_slots = num_slots
        self._first_fresh = max(taken, default=-1) + 1
        """From here on no slot was ever taken."""
        self._returned = sorted(set(range(self._first_fresh)).difference(taken))
        """A heap of the free ones before that."""

    def __len__(self) -> int:
        """Free slots."""
        return len(self._returned) + self._num_slots - self._first_fresh

    def take(self) -> int | None:
        """The lowest free slot, which is free no more; None: all are taken."""
        if self._returned:
            return heappop(self._returned)
        if self._first_fresh == self._num_slots:
            return None
        self._first_fresh += 1
        return self._first_fresh - 1

    def give_back(self, slot: int) -> None:
        """A taken slot is free again."""
        heappush(self._returned, slot)
