"""Writes down what the deciding side does to the cache, at the price of an append, for others to tell the world."""

from typing import NamedTuple

from octavo.kv.hashing import BlockHash
from octavo.kv.record import BlockRecord, Tier


class Removal(NamedTuple):
    """A block left a tier."""

    group: int
    block_hash: BlockHash


class Clearance(NamedTuple):
    """Everything left a tier."""


Change = tuple[Tier, BlockRecord | Removal | Clearance]


class EventRecorder:
    """A `CacheObserver` that keeps changes in their order until they are taken."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def stored(self, tier: Tier, record: BlockRecord) -> None:
        """See `CacheObserver.stored`."""
        self._changes.append((tier, record))

    def removed(self, tier: Tier, group: int, block_hash: BlockHash) -> None:
        """See `CacheObserver.removed`."""
        self._changes.append((tier, Removal(group, block_hash)))

    def cleared(self, tier: Tier) -> None:
        """See `CacheObserver.cleared`."""
        self._changes.append((tier, Clearance()))

    def take(self) -> list[Change]:
        """All changes since the last call."""
        changes, self._changes = self._changes, []
        return changes
