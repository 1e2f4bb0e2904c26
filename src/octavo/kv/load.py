"""Loads and stores while they are under way, as the deciding side sees them."""

from collections.abc import Sequence

from octavo.kv.hashing import BlockHash
from octavo.kv.record import BlockRecord, Tier
from octavo.kv.reservation import MissingBlock, Reservation
from octavo.kv.tier_directory import TierEntry
from octavo.kv.transfer import TransferPlan


class Load:
    """Blocks that requests wait for, from one tier or several. It ends when all its transfers have, or when it is
    cancelled; then what has come is cached, and whoever waits goes on with that."""

    __slots__ = ("has_come", "missing", "open", "records", "reservation", "tiers")

    def __init__(
        self,
        missing: Sequence[MissingBlock],
        records: Sequence[BlockRecord],
        tiers: Sequence[Tier],
        reservation: Reservation,
    ) -> None:
        """
        Args:
            records, tiers: of each missing block, and where it lies.
        """
        self.missing = missing
        self.records = records
        self.tiers = tiers
        self.reservation = reservation
        self.has_come = [False] * len(missing)
        self.open: dict[int, Transfer] = {}
        """Transfers that have not ended, by id."""

    def loaded(self) -> dict[BlockHash, Tier]:
        """Name -> the tier that the block has come from."""
        return {
            block.block_hash: tier
            for block, tier, come in zip(self.missing, self.tiers, self.has_come, strict=True)
            if come
        }


class Transfer:
    """One plan that a store has got, until the store says that it has ended."""

    __slots__ = (
        "ahead_bytes",
        "deadline_s",
        "is_cancelled",
        "is_void",
        "load",
        "made_s",
        "num_bytes",
        "places",
        "plan",
        "reading",
    )

    def __init__(self, plan: TransferPlan, num_bytes: int, ahead_bytes: int, made_s: float) -> None:
        self.plan = plan
        self.num_bytes = num_bytes
        self.ahead_bytes = ahead_bytes
        """Of loads from the same tier that were under way before."""
        self.made_s = made_s
        self.deadline_s = made_s + plan.lease_s
        self.is_cancelled = False
        """It has let go of its device blocks. What it did in the tier is not known before it ends."""
        self.is_void = False
        """Of a store: what it brings is to be forgotten."""
        self.load: Load | None = None
        """What a load is part of, while somebody waits for it."""
        self.places: Sequence[int] = ()
        """Of a load: places of its blocks in `load`."""
        self.reading: Sequence[TierEntry] = ()
        """Of a load: what it keeps from going."""
