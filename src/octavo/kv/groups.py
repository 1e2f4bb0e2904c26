"""What a cache group needs of the KV memory, by the kind of its layers."""

from collections.abc import Sequence
from typing import Protocol

from octavo.kv.hashing import BlockHash
from octavo.kv.prefix import PrefixIndex
from octavo.kv.spec import CacheGroup


class GroupPolicy(Protocol):
    """Decides for one cache group which prefixes can be reused. Which blocks stay held as a request grows belongs
    here, too, once a kind of layer exists that lets go of some."""

    index: PrefixIndex

    def accept(self, hashes: Sequence[BlockHash], limit: int) -> int:
        """Largest number of blocks, at most `limit`, from which this group can go on computing."""
        ...


class AttentionGroup:
    """Layers that keep K and V of every position: full attention, and sliding windows while these only mask.

    Windowed layers hold the same blocks as full ones: the window is applied by the kernel. Any published prefix can
    be continued.
    """

    def __init__(self, spec: CacheGroup) -> None:
        self.spec = spec
        self.index = PrefixIndex()

    def accept(self, hashes: Sequence[BlockHash], limit: int) -> int:
        """See `GroupPolicy.accept`."""
        return self.index.longest_hit(hashes, limit)


def common_hit(groups: Sequence[GroupPolicy], hashes: Sequence[BlockHash], limit: int) -> int:
    """The largest number of blocks, at most `limit`, that every group accepts.

    A group may accept k and yet refuse some k' < k (a window needs its last run of blocks, not the first), so one
    pass is not enough: groups step down in turn until a whole round changes nothing. Ends after at most `limit`
    rounds, for groups of full attention after two.
    """
    agreed = limit
    while True:
        before = agreed
        for group in groups:
            agreed = group.accept(hashes, agreed)
        if agreed == before:
            return agreed
