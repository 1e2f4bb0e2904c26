"""What is known of a cached block beyond one engine's pool: its name, its place in a chain, its tokens."""

from enum import StrEnum
from typing import Protocol

import msgspec

from octavo.kv.hashing import BlockHash


class Tier(StrEnum):
    """Where the bytes of a block lie, from the fastest to the slowest."""

    DEVICE = "device"
    """The pool that the kernels read."""
    HOST = "host"
    """A second pool in main memory."""
    DISK = "disk"


class BlockRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A full block that was computed: what any engine of equal fingerprint needs to find it and to go on from it.

    In one group, `block_hash` is its name everywhere: on the device, in a tier, in another engine.
    """

    group: int
    """Cache group whose layers the bytes belong to."""
    block_hash: BlockHash
    parent_hash: BlockHash | None
    """Name of the block before it; None for the first block of a prompt."""
    token_ids: tuple[int, ...]
    """Those of the block, `block_size` of them."""
    cache_salt: str | None = None
    """Salt of the chain."""


class CacheObserver(Protocol):
    """Hears of every change of what is cached where, in the order in which it happens.

    A block counts as stored once its bits are there: on the device when the step that fills it is done, in a tier when
    they have arrived. Called in the thread that decides; must return at once.
    """

    def stored(self, tier: Tier, record: BlockRecord) -> None:
        """A block can be found in a tier from now on. Parents come before children."""
        ...

    def removed(self, tier: Tier, group: int, block_hash: BlockHash) -> None:
        """A block that was stored cannot be found in a tier any more."""
        ...

    def cleared(self, tier: Tier) -> None:
        """Nothing can be found in a tier any more."""
        ...
