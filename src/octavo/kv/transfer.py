"""Blocks on their way between memories: what is to be moved (`TransferPlan`) and what came of it (`TransferEvent`).

Two rules make it safe to go on scheduling meanwhile. Matched is not ready: a block being loaded can be found by nobody
before its bytes have arrived and proved right. Finished is not reclaimable: a block in transit is not written by others
before the store touches it no more. And one keeps it alive: a lease bounds every wait, after which it is cancelled.
A store obeys that at once, so a cancelled transfer has let go of its device blocks, whatever it says later.

    store     planned -> started -> RELEASED (has copies of its device blocks) -> DONE | FAILED
    load      planned -> started ------------------------------------------> DONE | FAILED
    cancel    at any time -> FAILED, unless DONE was on its way

The other end is a name, not an object: a tier of this engine now, another engine's memory later.
"""

from enum import StrEnum

import msgspec

from octavo.kv.hashing import BlockHash
from octavo.kv.record import BlockRecord, Tier

BlockName = tuple[int, BlockHash]
"""(cache group, hash): what names a block in every memory."""


class Direction(StrEnum):
    """Which way the bytes go."""

    STORE = "store"
    """From device blocks into a tier."""
    LOAD = "load"
    """From a tier into device blocks."""


class BlockMove(msgspec.Struct, frozen=True, kw_only=True):
    """One block of a transfer."""

    block_id: int
    """On the device."""
    record: BlockRecord


class TransferPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks to move, parents first."""

    transfer_id: int
    """Unique in the life of an engine; events of other ids are ignored."""
    direction: Direction
    tier: Tier
    moves: tuple[BlockMove, ...]
    after_step: int
    """No device block may be touched before this step has run: until then steps in flight may still write there.
    -1: at once."""
    lease_s: float
    """Seconds from its start after which whoever planned it cancels it."""


class TransferState(StrEnum):
    """What an event says of its transfer. Of DONE and FAILED there is exactly one, and nothing after it."""

    RELEASED = "released"
    """A store holds copies of all blocks: it needs those on the device no more."""
    DONE = "done"
    """All blocks have arrived."""
    FAILED = "failed"
    """It ended early. The device blocks are touched no more."""


class TransferEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a store reports."""

    transfer_id: int
    state: TransferState
    num_moved: int
    """The first so many blocks have arrived, with the right checksums; of DONE all."""
    lost: tuple[BlockName, ...] = ()
    """Blocks of a load that the tier turned out not to hold, or to hold damaged: it holds them no more."""
    num_bytes: int = 0
    seconds: float = 0.0
    """Spent on them, queueing left out: bytes per second foretell the next transfer."""
    problem: str = ""
    """Of FAILED: what happened."""


class TransferOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What stores are to do, in this order, before any step runs that was planned later."""

    cancels: tuple[tuple[Tier, int], ...] = ()
    """(tier, transfer id)."""
    removals: tuple[tuple[Tier, BlockName], ...] = ()
    """Blocks to forget."""
    plans: tuple[TransferPlan, ...] = ()
