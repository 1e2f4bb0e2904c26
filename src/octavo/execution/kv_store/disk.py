"""Blocks on disk: what lies there outlives the process, and nothing that lies there is believed."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from errno import ENOENT

import numpy as np

from octavo.execution.kv_store.entry import FREE, HEAD_BYTES, DamagedError, Entry, EntryFormat, ForeignError, digest
from octavo.execution.kv_store.folder import BLOCKS, ENTRIES, OwnedFolder
from octavo.execution.kv_store.free_slots import FreeSlots
from octavo.execution.kv_store.medium import BlockLostError, NoRoomError, Place
from octavo.execution.kv_store.slot_file import DiskFile, OpenFile
from octavo.execution.protocols import Bytes
from octavo.kv.record import BlockRecord
from octavo.kv.transfer import BlockName

log = logging.getLogger(__name__)

REST_S = 60.0
"""After a failed write nothing is written for so long."""


@dataclass(frozen=True)
class _Held:
    """Where a block lies and what it looks like."""

    slot: int
    num_bytes: int
    digest: bytes


class DiskMedium:
    """A `Medium` of equal slots in one file, with their entries in another.

    A block is written first, then its entry. Killed between the two, nothing is there; should the system itself go
    down and only the entry reach the disk, the digest in it tells. Nothing is synced for that reason: a block that is
    lost is computed again. What fails is warned of once and never raised in a step: without room, or without the
    folder, there is simply nothing to be had from here.
    """

    def __init__(
        self,
        folder: OwnedFolder,
        entry_format: EntryFormat,
        block_bytes: Sequence[int],
        open_file: OpenFile = DiskFile,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`block_bytes`: those of a block of each cache group.

        Raises:
            OSError: the files cannot be opened.
        """
        self._folder = folder
        self._format = entry_format
        self._block_bytes = tuple(block_bytes)
        self._clock = clock
        self._entries = open_file(folder.path / ENTRIES)
        self._blocks = open_file(folder.path / BLOCKS)
        self._num_slots = (folder.capacity_bytes - HEAD_BYTES) // self._bytes_per_slot
        self.capacity_bytes = self._num_slots * self._bytes_per_slot
        self._lock = threading.Lock()
        self._held: dict[BlockName, _Held] = {}
        self._free = FreeSlots(0)
        self._extent = 0
        """Slots that the files have room for so far."""
        self._stamp = 0
        self._rests_until: float | None = None
        self._warned: set[str] = set()
        self._read_buffer = np.empty(entry_format.slot_bytes, np.uint8)

    @property
    def _bytes_per_slot(self) -> int:
        return self._format.num_bytes + self._format.slot_bytes

    def num_bytes(self, record: BlockRecord) -> int:
        """See `KVStore.num_bytes`."""
        return self._bytes_per_slot

    def inventory(self) -> list[BlockRecord]:
        """Reads all entries. The blocks themselves are looked at when they are loaded."""
        try:
            found, problems = self._read_entries()
            self._adopt(found)
            self._folder.make_room(self._bytes_up_to(self._extent))
        except (OSError, NoRoomError) as error:
            self._rest(error)
            return []
        if problems:
            left_out, first = len(problems), problems[0]
            log.warning("%s: %d KV blocks are left out and computed anew (%s)", self._folder.path, left_out, first)
        return [found[slot].record for slot in sorted(found, key=lambda slot: found[slot].stamp)]

    def holds(self, name: BlockName) -> bool:
        """See `Medium.holds`."""
        return name in self._held

    def reserve(self, record: BlockRecord) -> Place:
        """A slot, and memory apart from it."""
        problem = self._format.fits(record)
        if problem:
            raise NoRoomError(f"{self._folder.path} cannot keep a block: {problem}")
        if self._rests_until is not None and self._clock() < self._rests_until:
            raise NoRoomError(f"{self._folder.path} could not be written, and rests")
        with self._lock:
            slot = self._free.take()
        if slot is None:
            raise NoRoomError(f"{self._folder.path} holds {len(self._held)} blocks, and no slot is free")
        return Place(np.empty(self._block_bytes[record.group], np.uint8), slot)

    def keep(self, record: BlockRecord, place: Place) -> None:
        """See `Medium.keep`."""
        entry = Entry(
            record=record, num_bytes=len(place.data), digest=digest(place.data.data), stamp=self._next_stamp()
        )
        try:
            self._grow(place.slot)
            self._blocks.write(place.slot * self._format.slot_bytes, place.data.data)
            self._entries.write(self._entry_at(place.slot), self._format.encode(entry))
        except (OSError, NoRoomError) as error:
            self._rest(error)
            self.give_back(place)
            raise
        self._rests_until = None
        with self._lock:
            self._held[record.group, record.block_hash] = _Held(place.slot, entry.num_bytes, entry.digest)

    def give_back(self, place: Place) -> None:
        """See `Medium.give_back`."""
        with self._lock:
            self._free.give_back(place.slot)

    def read(self, record: BlockRecord) -> Bytes:
        """See `Medium.read`."""
        name = (record.group, record.block_hash)
        held = self._held.get(name)
        if held is None:
            raise BlockLostError(f"{self._folder.path} does not hold the block")
        out = self._read_buffer[: held.num_bytes]
        problem = self._read_into(out, held)
        if problem:
            self._warn("damage", f"a KV block is left out and computed anew ({problem})")
            self._forget(name, held)
            raise BlockLostError(f"{self._folder.path}: {problem}")
        self._write_entry_part(held.slot, self._format.stamp_at, self._format.stamp(self._next_stamp()))
        return out

    def remove(self, names: Sequence[BlockName]) -> None:
        """See `Medium.remove`."""
        for name in names:
            held = self._held.get(name)
            if held is not None:
                self._forget(name, held)

    def close(self) -> None:
        """Closes the files and leaves the folder to whoever comes next."""
        self._entries.close()
        self._blocks.close()
        self._folder.release()

    # --- entries --------------------------------------------------------------------------------------------------

    def _entry_at(self, slot: int) -> int:
        return HEAD_BYTES + slot * self._format.num_bytes

    def _read_entries(self) -> tuple[dict[int, Entry], list[str]]:
        """Sound entries by slot, and what is wrong with the others, which are erased."""
        raw = memoryview(bytearray(min(self._entries.size(), self._entry_at(self._num_slots))))
        raw = raw[: self._entries.read(0, raw)]
        try:
            self._format.check_head(raw[:HEAD_BYTES].tobytes())
        except (DamagedError, ForeignError) as error:
            self._start_anew()
            return {}, [str(error)] if len(raw) else []
        found: dict[int, Entry] = {}
        problems = []
        size, end = self._format.num_bytes, self._blocks.size()
        for slot in range((len(raw) - HEAD_BYTES) // size):
            try:
                entry = self._format.decode(raw[self._entry_at(slot) :][:size])
                if entry is not None:
                    found[slot] = self._checked(entry, end - slot * self._format.slot_bytes)
            except (DamagedError, ForeignError) as error:
                problems.append(str(error))
                self._entries.write(self._entry_at(slot), FREE)
        return found, problems

    def _checked(self, entry: Entry, room: int) -> Entry:
        """
        Args:
            room: bytes from the beginning of its slot to the end of the file.

        Raises:
            ForeignError: an entry that no block of this layout can have.
            DamagedError: the file ends before its block does.
        """
        group, count = entry.record.group, len(self._block_bytes)
        if group >= count or entry.num_bytes != self._block_bytes[group]:
            raise ForeignError(f"a block of {entry.num_bytes} bytes in group {group} of {count}")
        if entry.num_bytes > room:
            raise DamagedError("the file of blocks was cut short")
        return entry

    def _start_anew(self) -> None:
        self._entries.cut(0)
        self._blocks.cut(0)
        self._entries.write(0, self._format.head())

    def _adopt(self, found: dict[int, Entry]) -> None:
        """Takes over what was found; what lies behind it in the files goes."""
        self._held = {
            (entry.record.group, entry.record.block_hash): _Held(slot, entry.num_bytes, entry.digest)
            for slot, entry in found.items()
        }
        self._stamp = max((entry.stamp for entry in found.values()), default=0)
        self._free = FreeSlots(self._num_slots, {held.slot for held in self._held.values()})
        self._extent = max(found, default=-1) + 1
        self._cut()

    # --- writing --------------------------------------------------------------------------------------------------

    def _bytes_up_to(self, extent: int) -> int:
        return HEAD_BYTES + extent * self._bytes_per_slot

    def _grow(self, slot: int) -> None:
        if not (self._blocks.is_linked() and self._entries.is_linked()):
            self._held.clear()
            self._blocks.cut(0)  # gives its room back
            self._num_slots, self._free = 0, FreeSlots(0)
            raise FileNotFoundError(ENOENT, "the files were deleted; a restart begins anew")
        if slot >= self._extent:
            self._folder.make_room(self._bytes_up_to(slot + 1))
            self._extent = slot + 1

    def _cut(self) -> None:
        self._entries.cut(self._entry_at(self._extent))
        self._blocks.cut(self._extent * self._format.slot_bytes)

    def _forget(self, name: BlockName, held: _Held) -> None:
        """The slot is free only after its entry is, so that nobody's new entry is erased."""
        with self._lock:
            if self._held.get(name) is not held:
                return
            del self._held[name]
        self._write_entry_part(held.slot, 0, FREE)
        with self._lock:
            self._free.give_back(held.slot)

    def _write_entry_part(self, slot: int, offset: int, data: bytes) -> None:
        """What is not written here is made up for by digests: at worst a block is found whose bytes are another's."""
        try:
            self._entries.write(self._entry_at(slot) + offset, data)
        except OSError as error:
            self._rest(error)

    def _rest(self, error: Exception) -> None:
        self._rests_until = self._clock() + REST_S
        self._warn("write", f"no KV blocks are stored for now, and answers are not affected ({error})")

    def _read_into(self, out: Bytes, held: _Held) -> str:
        """Fills `out`; returns what is wrong with the bytes."""
        try:
            got = self._blocks.read(held.slot * self._format.slot_bytes, out.data)
        except OSError as error:
            return str(error)
        if got < len(out):
            return f"the file ends after {got} of {len(out)} bytes of a block"
        return "" if digest(out.data) == held.digest else "bytes of a block are damaged"

    def _next_stamp(self) -> int:
        with self._lock:
            self._stamp += 1
            return self._stamp

    def _warn(self, kind: str, problem: str) -> None:
        """One warning of a kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s: %s", self._folder.path, problem)
