"""What a tier is made of: the contract between a store, which knows transfers, and a medium, which knows bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.execution.protocols import Bytes
from octavo.kv.record import BlockRecord
from octavo.kv.transfer import BlockName


class NoRoomError(Exception):
    """A medium takes no block now: it is full, or has stopped writing for a while."""


class BlockLostError(Exception):
    """A medium does not hold a block, or not unharmed. It holds it no more."""


@dataclass
class Place:
    """Memory for one block on its way into a medium."""

    data: Bytes
    """To be filled, `[bytes of the block]`."""
    slot: int
    """Where in the medium it is to lie."""


class Medium(Protocol):
    """Blocks by name. `read` is called by one thread, all else by another; nothing is ever called under a lock, so any
    call may take long."""

    capacity_bytes: int

    def num_bytes(self, record: BlockRecord) -> int:
        """See `KVStore.num_bytes`."""
        ...

    def inventory(self) -> list[BlockRecord]:
        """See `KVStore.inventory`."""
        ...

    def holds(self, name: BlockName) -> bool:
        """Whether a block can be read."""
        ...

    def reserve(self, record: BlockRecord) -> Place:
        """Memory for a block that is to be kept. Quick.

        Raises:
            NoRoomError: it cannot be kept; says why.
        """
        ...

    def keep(self, record: BlockRecord, place: Place) -> None:
        """Takes what has been filled in: the block can be read from now on. The place is used up, whatever comes.

        Raises:
            NoRoomError, OSError: it was not kept.
        """
        ...

    def give_back(self, place: Place) -> None:
        """Lets go of a place that is not to be kept after all."""
        ...

    def read(self, record: BlockRecord) -> Bytes:
        """The bytes of a block, proved to be what was kept; good until the next call of `read`.

        Raises:
            BlockLostError: they are not there, or damaged.
        """
        ...

    def remove(self, names: Sequence[BlockName]) -> None:
        """Forgets blocks; those that it does not hold are skipped."""
        ...

    def close(self) -> None:
        """Releases everything. The last call."""
        ...
