"""What lies in one tier, and what goes when there is no more room."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from octavo.kv.record import BlockRecord, Tier
from octavo.kv.transfer import BlockName

Old = tuple[int, int, BlockName]
"""(time of last use, entries made before, name): the smallest goes first."""


class TierEntry:
    """One block that lies in a tier, or is on its way there."""

    __slots__ = ("has_arrived", "last_use", "num_bytes", "num_readers", "number", "record")

    def __init__(self, record: BlockRecord, num_bytes: int, number: int) -> None:
        self.record = record
        self.num_bytes = num_bytes
        self.number = number
        self.has_arrived = False
        self.last_use = 0
        self.num_readers = 0
        """Loads under way that read it."""


class TierDirectory:
    """The blocks of one tier by their names. The least recently used go first, deeper ones before those before them.

    Who uses a block uses all blocks before it, so it is enough to compare blocks that no other block stands behind
    here. These stand in a heap by their last use; what has changed since stays there and is passed over.

    Time is the number of uses so far. A block in transit stays until its transfer has ended.
    """

    def __init__(
        self, tier: Tier, capacity_bytes: int, num_bytes: Callable[[BlockRecord], int], is_closed: Sequence[bool]
    ) -> None:
        """
        Args:
            num_bytes: what a block takes here.
            is_closed: [group] whether blocks are of use only behind the blocks before them.
        """
        self.tier = tier
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        """Of blocks that lie here or are on their way here; never more than the capacity."""
        self._num_bytes = num_bytes
        self._is_closed = is_closed
        self._entries: dict[BlockName, TierEntry] = {}
        self._num_children: dict[BlockName, int] = {}
        """Name, known here or not -> entries that stand right behind it."""
        self._oldest: list[Old] = []
        self._gone: list[BlockName] = []
        self._clock = 0
        self._num_made = 0

    def __len__(self) -> int:
        """Blocks that lie here, or are on their way."""
        return len(self._entries)

    def __contains__(self, name: BlockName) -> bool:
        """Whether the block lies here, so that it can be loaded."""
        entry = self._entries.get(name)
        return entry is not None and entry.has_arrived

    def knows(self, name: BlockName) -> bool:
        """Whether the block lies here or is on its way."""
        return name in self._entries

    def record(self, name: BlockName) -> BlockRecord:
        """The record of a known block."""
        return self._entries[name].record

    def bytes_of(self, name: BlockName) -> int:
        """Bytes that a known block takes."""
        return self._entries[name].num_bytes

    def records(self) -> Iterator[BlockRecord]:
        """Of the blocks that lie here; parents before children."""
        waiting = {name for name in self._entries if name in self}
        for start in list(waiting):
            chain: list[BlockRecord] = []
            name: BlockName | None = start
            while name in waiting:
                waiting.remove(name)
                chain.append(self._entries[name].record)
                name = None if chain[-1].parent_hash is None else (chain[-1].group, chain[-1].parent_hash)
            yield from reversed(chain)

    def names(self) -> Iterator[BlockName]:
        """Of all blocks that lie here or are on their way."""
        return iter(self._entries)

    def coming(self) -> list[BlockName]:
        """Blocks that are on their way here."""
        return [name for name, entry in self._entries.items() if not entry.has_arrived]

    def can_all_go(self) -> bool:
        """Whether every block that may go now stands in the order of going; O(n), for tests."""
        filed = {old[2] for old in self._oldest if self._holds(old)}
        return filed == {
            name
            for name, entry in self._entries.items()
            if entry.has_arrived and not entry.num_readers and name not in self._num_children
        }

    # ---- blocks come and go

    def expect(self, record: BlockRecord) -> bool:
        """Makes room for a block that is not known here, and counts it as on its way. False if there can be none."""
        name, parent = (record.group, record.block_hash), self._parent(record)
        self._num_made += 1
        entry = self._entries[name] = TierEntry(record, self._num_bytes(record), self._num_made)
        self.used_bytes += entry.num_bytes
        if parent is not None:
            self._num_children[parent] = self._num_children.get(parent, 0) + 1
        if self._make_room():
            return True
        self.remove(name)
        return False

    def arrived(self, name: BlockName) -> None:
        """An expected block lies here now."""
        entry = self._entries[name]
        entry.has_arrived = True
        self._clock += 1
        entry.last_use = self._clock
        self._may_go(name, entry)

    def remove(self, name: BlockName) -> None:
        """A known block does not lie here (any more), or did not come."""
        entry = self._entries.pop(name)
        self.used_bytes -= entry.num_bytes
        parent = self._parent(entry.record)
        if parent is None:
            return
        self._num_children[parent] -= 1
        if not self._num_children[parent]:
            del self._num_children[parent]
            if parent in self._entries:
                self._may_go(parent, self._entries[parent])

    def take_gone(self) -> list[BlockName]:
        """Blocks that went for want of room since the last call."""
        gone, self._gone = self._gone, []
        return gone

    def clear(self) -> list[BlockName]:
        """Forgets all blocks that lie here, but not those on their way; returns them."""
        gone = [name for name, entry in self._entries.items() if entry.has_arrived]
        for name in gone:
            self.remove(name)
        return gone

    # ---- use

    def touch(self, names: Iterable[BlockName]) -> None:
        """Blocks of one chain have been used; unknown ones are skipped."""
        self._clock += 1
        for name in names:
            entry = self._entries.get(name)
            if entry is not None:
                entry.last_use = self._clock
                self._may_go(name, entry)

    def begin_reading(self, names: Iterable[BlockName]) -> list[TierEntry]:
        """A load reads these blocks, which lie here: they stay until `end_reading` is given what this returns."""
        entries = [self._entries[name] for name in names]
        for entry in entries:
            entry.num_readers += 1
        return entries

    def end_reading(self, entries: Iterable[TierEntry]) -> None:
        """That load has ended, whatever has become of the blocks meanwhile."""
        for entry in entries:
            entry.num_readers -= 1
            name = (entry.record.group, entry.record.block_hash)
            if self._entries.get(name) is entry:
                self._may_go(name, entry)

    def _may_go(self, name: BlockName, entry: TierEntry) -> None:
        """Files a block in the order of going, if nothing stands behind it."""
        if name in self._num_children:
            return
        heappush(self._oldest, (entry.last_use, entry.number, name))
        if len(self._oldest) > 4 * len(self._entries) + 64:
            self._oldest = [old for old in set(self._oldest) if self._holds(old)]
            heapify(self._oldest)

    def _holds(self, old: Old) -> bool:
        """Whether what was filed is still true, and the block may go now."""
        last_use, number, name = old
        entry = self._entries.get(name)
        if entry is None or name in self._num_children:
            return False
        return entry.number == number and entry.last_use == last_use and entry.has_arrived and not entry.num_readers

    def _make_room(self) -> bool:
        """Lets the least recently used blocks go until the rest fits; False if it cannot, as all that is left is in
        transit or stands before such blocks."""
        while self.used_bytes > self.capacity_bytes:
            if not self._oldest:
                return False
            old = heappop(self._oldest)
            if self._holds(old):
                self.remove(old[2])
                self._gone.append(old[2])
        return True

    def _parent(self, record: BlockRecord) -> BlockName | None:
        """The block that this one is of use behind."""
        if record.parent_hash is None or not self._is_closed[record.group]:
            return None
        return (record.group, record.parent_hash)
