"""What is known and planned of one tier: its directory, what is still to be stored, its speed, its failures."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from octavo.kv.record import BlockRecord, Tier
from octavo.kv.speed import LoadSpeed
from octavo.kv.tier_directory import TierDirectory
from octavo.kv.transfer import BlockName, Direction

MAX_BACKLOG = 8192
"""Blocks that may wait to be stored; those computed when it is full are not stored."""
MAX_STORING = 128
"""Blocks on their way into a tier at one time."""
_MIN_REST_S, _MAX_REST_S = 1.0, 60.0


class TierSettings(NamedTuple):
    """What is decided about a tier rests on this."""

    tier: Tier
    capacity_bytes: int
    num_bytes: Callable[[BlockRecord], int]
    """What a block takes there."""
    inventory: Sequence[BlockRecord] = ()
    """What lies there at start, least recently used first."""


class Patience:
    """With a tier in one direction. Failures make it rest, twice as long each time: a full or broken disk is as good as
    none, and is asked again now and then."""

    def __init__(self) -> None:
        self.num_failed = 0
        """Transfers that ended early by the tier's fault."""
        self._rest_s = _MIN_REST_S
        self._rests_until_s: float | None = None

    def lasts(self, now_s: float) -> bool:
        """Whether transfers may be planned."""
        return self._rests_until_s is None or self._rests_until_s <= now_s

    def failed(self, now_s: float) -> None:
        """A transfer ended early, or its lease did."""
        self.num_failed += 1
        if self.lasts(now_s):
            self._rests_until_s = now_s + self._rest_s
            self._rest_s = min(_MAX_REST_S, 2 * self._rest_s)

    def worked(self) -> None:
        """A transfer has ended well."""
        self._rests_until_s = None
        self._rest_s = _MIN_REST_S


class TierBook:
    """One tier."""

    def __init__(self, settings: TierSettings, is_closed: Sequence[bool]) -> None:
        self.tier = settings.tier
        self.directory = TierDirectory(settings.tier, settings.capacity_bytes, settings.num_bytes, is_closed)
        self.backlog: dict[BlockName, BlockRecord] = {}
        """Computed blocks that are to be stored, parents before children."""
        self.num_storing = 0
        self.loading_bytes = 0
        """Of loads that have not ended."""
        self.speed = LoadSpeed()
        self.num_stored = 0
        """Blocks that came, since start; so the others."""
        self.num_loaded = 0
        self.num_evicted = 0
        self.num_lost = 0
        """Blocks that turned out to be missing or damaged."""
        self.patience = {direction: Patience() for direction in Direction}
        """A disk that takes nothing any more may still give what it has."""
        for record in settings.inventory:
            if not self.directory.knows((record.group, record.block_hash)) and self.directory.expect(record):
                self.directory.arrived((record.group, record.block_hash))

    def note(self, record: BlockRecord) -> None:
        """A block has been computed, or has come from elsewhere: it is to be stored, unless it is known here."""
        name = (record.group, record.block_hash)
        if len(self.backlog) < MAX_BACKLOG and not self.directory.knows(name):
            self.backlog[name] = record

    def counters(self) -> dict[str, float]:
        """name -> total since start."""
        totals = {
            "stored_blocks": self.num_stored,
            "loaded_blocks": self.num_loaded,
            "evicted_blocks": self.num_evicted,
            "lost_blocks": self.num_lost,
            "failed_stores": self.patience[Direction.STORE].num_failed,
            "failed_loads": self.patience[Direction.LOAD].num_failed,
        }
        return {f"{self.tier}_{name}": float(total) for name, total in totals.items()}
