"""Blocks in main memory."""

import mmap
from collections.abc import Sequence

import numpy as np

from octavo.errors import OutOfMemoryError
from octavo.execution.kv_store.free_slots import FreeSlots
from octavo.execution.kv_store.medium import BlockLostError, NoRoomError, Place
from octavo.execution.protocols import Bytes
from octavo.kv.record import BlockRecord
from octavo.kv.transfer import BlockName


class HostMedium:
    """A `Medium` of equal slots in one stretch of memory, whose pages appear when they are first written.

    Slots are as large as the largest block of any group, as in the device pool, so every slot suits every block and
    nothing fragments. Always the lowest free slot is taken: what was never needed is never touched.
    """

    def __init__(self, block_bytes: Sequence[int], capacity_bytes: int) -> None:
        """`block_bytes`: those of a block of each cache group.

        Raises:
            OutOfMemoryError: the system refuses so much memory.
        """
        self._block_bytes = tuple(block_bytes)
        self._slot_bytes = max(block_bytes)
        num_slots = capacity_bytes // self._slot_bytes
        self.capacity_bytes = num_slots * self._slot_bytes
        self._memory = _reserve(num_slots, self._slot_bytes)
        self._free = FreeSlots(num_slots)
        self._slot_by_name: dict[BlockName, int] = {}

    def num_bytes(self, record: BlockRecord) -> int:
        """See `KVStore.num_bytes`."""
        return self._slot_bytes

    def inventory(self) -> list[BlockRecord]:
        """Nothing survives an engine here."""
        return []

    def holds(self, name: BlockName) -> bool:
        """See `Medium.holds`."""
        return name in self._slot_by_name

    def reserve(self, record: BlockRecord) -> Place:
        """A slot: what is filled in is where it stays."""
        slot = self._free.take()
        if slot is None:
            raise NoRoomError(f"host memory holds {len(self._slot_by_name)} blocks, and no slot is free")
        return Place(self._memory[slot, : self._block_bytes[record.group]], slot)

    def keep(self, record: BlockRecord, place: Place) -> None:
        """See `Medium.keep`."""
        self._slot_by_name[record.group, record.block_hash] = place.slot

    def give_back(self, place: Place) -> None:
        """See `Medium.give_back`."""
        self._free.give_back(place.slot)

    def read(self, record: BlockRecord) -> Bytes:
        """A view of the slot. It may be overwritten if the block is removed meanwhile, that is if the load was ended:
        nobody looks at it then."""
        slot = self._slot_by_name.get((record.group, record.block_hash))
        if slot is None:
            raise BlockLostError("host memory does not hold the block")
        return self._memory[slot, : self._block_bytes[record.group]]

    def remove(self, names: Sequence[BlockName]) -> None:
        """See `Medium.remove`."""
        for name in names:
            slot = self._slot_by_name.pop(name, None)
            if slot is not None:
                self._free.give_back(slot)

    def close(self) -> None:
        """Lets the memory go once nobody looks at it any more."""
        self._slot_by_name.clear()
        self._memory = _reserve(0, self._slot_bytes)


def _reserve(num_slots: int, slot_bytes: int) -> Bytes:
    """`[num_slots, slot_bytes]`, untouched."""
    if num_slots == 0:
        return np.empty((0, slot_bytes), np.uint8)
    try:
        memory = mmap.mmap(-1, num_slots * slot_bytes)
    except OSError as error:
        problem = f"{num_slots} KV blocks of {slot_bytes} bytes in host memory: {error.strerror}; ask for less"
        raise OutOfMemoryError(problem) from None
    return np.frombuffer(memory, np.uint8).reshape(num_slots, slot_bytes)
