"""What an observer can know of a manager's cache: a copy of it, kept from what it is told."""

from octavo.kv.hashing import BlockHasher, salt_key
from octavo.kv.record import Tier


class Mirror:
    """A `CacheObserver` that believes nothing it could check."""

    def __init__(self, hasher: BlockHasher) -> None:
        self._hasher = hasher
        self.records = {}
        """(tier, group, name) -> record."""

    def names(self, tier=Tier.DEVICE):
        """(group, name) of all that is stored in a tier."""
        return {(group, name) for where, group, name in self.records if where is tier}

    def stored(self, tier, record):
        key = (tier, record.group, record.block_hash)
        assert key not in self.records, f"{record} is stored twice"
        chain = [record.parent_hash] if record.parent_hash else []
        self._hasher.extend(chain, _behind(chain, record), len(chain) + 1, salt_key(record.cache_salt))
        assert chain[-1] == record.block_hash, f"{record} has another name"
        self.records[key] = record

    def removed(self, tier, group, block_hash):
        del self.records[tier, group, block_hash]

    def cleared(self, tier):
        self.records = {key: record for key, record in self.records.items() if key[0] is not tier}


def _behind(chain, record):
    """The record's tokens at their place in a chain of as many blocks as are named."""
    return [0] * (len(chain) * len(record.token_ids)) + list(record.token_ids)


def computed_names(manager):
    """(group, name) of all blocks that can be found and are computed."""
    return {
        (number, block.hash)
        for number, policy in enumerate(manager._groups)
        for block in policy.index
        if not block.in_flight
    }
