"""A cache without an engine: chains of blocks that come and go in tiers, told to an event stream, and the truth kept
apart from it."""

from octavo.kv.events import EventFormat, EventRecorder, EventStream, GroupWords, Translator, short_hash
from octavo.kv.events.words import MEDIUM_BY_TIER
from octavo.kv.hashing import BlockHasher, salt_key
from octavo.kv.record import BlockRecord, Tier

SIZE = 2
GROUPS = (GroupWords("full_attention", None), GroupWords("sliding_window", 3))
HASHER = BlockHasher("f", SIZE)

Held = frozenset[tuple[str, int, int]]
"""(medium, group, name) of each stored block."""


def make_stream(
    *, epoch: bytes = bytes(16), first_seq: int = 0, buffer_steps: int = 100, form: EventFormat = "map"
) -> EventStream:
    return EventStream(
        Translator(GROUPS, SIZE), epoch=epoch, first_seq=first_seq, buffer_steps=buffer_steps, form=form, topic=b"t"
    )


def chain(token_ids: list[int], *, group: int = 0, salt: str | None = None) -> list[BlockRecord]:
    """Records of the full blocks of a prompt."""
    hashes: list[bytes] = []
    HASHER.extend(hashes, token_ids, len(token_ids) // SIZE, salt_key(salt))
    return [
        BlockRecord(
            group=group,
            block_hash=name,
            parent_hash=hashes[i - 1] if i else None,
            token_ids=tuple(token_ids[i * SIZE : (i + 1) * SIZE]),
            cache_salt=salt,
        )
        for i, name in enumerate(hashes)
    ]


class World:
    """One life of a cache. What it says is taken with `changes.take()`."""

    def __init__(self) -> None:
        self.changes = EventRecorder()
        self.records: dict[tuple[Tier, int, bytes], BlockRecord] = {}
        """What is stored now."""

    def store(self, tier: Tier, record: BlockRecord) -> None:
        """As an engine does: what is there already is not stored again."""
        key = tier, record.group, record.block_hash
        if key not in self.records:
            self.records[key] = record
            self.changes.stored(tier, record)

    def remove(self, tier: Tier, record: BlockRecord) -> None:
        if self.records.pop((tier, record.group, record.block_hash), None) is not None:
            self.changes.removed(tier, record.group, record.block_hash)

    def clear(self, tier: Tier) -> None:
        self.records = {key: record for key, record in self.records.items() if key[0] is not tier}
        self.changes.cleared(tier)

    @property
    def held(self) -> Held:
        return frozenset((MEDIUM_BY_TIER[tier], group, short_hash(name)) for tier, group, name in self.records)
