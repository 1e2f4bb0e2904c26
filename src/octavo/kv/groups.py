"""What a cache group needs of the KV memory, by the kind of its layers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from octavo.kv.hashing import BlockHash
from octavo.kv.prefix import PrefixIndex
from octavo.kv.spec import CacheGroup

Found = Callable[[BlockHash], bool]
"""Whether there is a block of that name in some place."""


class GroupPolicy(Protocol):
    """Decides for one cache group which prefixes can be reused and which blocks a growing request still needs."""

    index: PrefixIndex
    is_closed: bool
    """With a cached block the blocks before it are cached: requests never let go of blocks."""
    publishes_in_flight: bool
    """A block can be read in the very step that fills it."""

    def accept(self, hashes: Sequence[BlockHash], limit: int) -> int:
        """Largest number of blocks, at most `limit`, from which this group can go on computing."""
        ...

    def accept_with(self, hashes: Sequence[BlockHash], elsewhere: Found, limit: int) -> int:
        """What `accept` would be if the blocks found elsewhere were cached, too."""
        ...

    def first_block(self, num_tokens: int) -> int:
        """First table entry needed to go on behind `num_tokens` computed tokens; those before it can go."""
        ...


class WholeGroup:
    """Layers of which every position needs all before it: full attention, multi-head latent attention."""

    is_closed = True
    publishes_in_flight = True

    def __init__(self) -> None:
        self.index = PrefixIndex()

    def accept(self, hashes: Sequence[BlockHash], limit: int) -> int:
        """See `GroupPolicy.accept`. Any cached prefix can be continued."""
        return self.index.longest_hit(hashes, limit)

    def accept_with(self, hashes: Sequence[BlockHash], elsewhere: Found, limit: int) -> int:
        """See `GroupPolicy.accept_with`. No closure is promised elsewhere, so it looks at each block behind the hit."""
        border = self.index.longest_hit(hashes, limit)
        while border < limit and (elsewhere(hashes[border]) or hashes[border] in self.index):
            border += 1
        return border

    def first_block(self, num_tokens: int) -> int:
        """See `GroupPolicy.first_block`."""
        return 0


class ReachGroup:
    """Layers of which a position needs only those within reach: sliding windows, chunked-local attention, and recurrent
    state, which needs but the snapshot at the border."""

    is_closed = False

    def __init__(self, group: CacheGroup, block_size: int) -> None:
        self.index = PrefixIndex()
        self.publishes_in_flight = group.spec.can_be_cut
        self._first_needed = group.spec.first_needed
        self._block_size = block_size

    def accept(self, hashes: Sequence[BlockHash], limit: int) -> int:
        """See `GroupPolicy.accept`. A border will do if the run of blocks within reach before it is cached:

            blocks    0 1 2 3 4 5 6 | 7        border 7, of which 4, 5 and 6 are within reach
            cached    n n n y n y y |          4 is missing, and every border behind it needs it: try border 4

        Each block is looked up at most twice, as the next run ends where this one was seen to break.
        """
        return self._longest(hashes, limit, self.index.__contains__)

    def accept_with(self, hashes: Sequence[BlockHash], elsewhere: Found, limit: int) -> int:
        """See `GroupPolicy.accept_with`."""
        return self._longest(hashes, limit, lambda name: name in self.index or elsewhere(name))

    def _longest(self, hashes: Sequence[BlockHash], limit: int, found: Found) -> int:
        border = limit
        while border:
            run = range(self.first_block(border * self._block_size), border)
            missing = next((block for block in run if not found(hashes[block])), None)
            if missing is None:
                return border
            border = missing
        return 0

    def first_block(self, num_tokens: int) -> int:
        """See `GroupPolicy.first_block`."""
        return self._first_needed(num_tokens) // self._block_size


def policy_for(group: CacheGroup, block_size: int) -> GroupPolicy:
    """The policy of a group of layers."""
    return WholeGroup() if group.spec.reach is None else ReachGroup(group, block_size)


def common_hit(groups: Sequence[GroupPolicy], hashes: Sequence[BlockHash], limit: int) -> int:
    """The largest number of blocks, at most `limit`, that every group accepts.

    A group may accept k and yet refuse some k' < k (a window needs its last run of blocks, not the first), so one
    pass is not enough: groups step down in turn until a whole round changes nothing. Ends after at most `limit`
    rounds, for groups of full attention after two.
    """
    return _agree([partial(group.accept, hashes) for group in groups], limit)


def joint_hit(
    groups: Sequence[GroupPolicy], hashes: Sequence[BlockHash], limit: int, elsewhere: Sequence[Found]
) -> int:
    """What `common_hit` would be if the blocks of each group that are found elsewhere were cached, too."""
    accept = [partial(group.accept_with, hashes, found) for group, found in zip(groups, elsewhere, strict=True)]
    return _agree(accept, limit)


def _agree(accept: Sequence[Callable[[int], int]], limit: int) -> int:
    agreed = limit
    while True:
        before = agreed
        for longest in accept:
            agreed = longest(agreed)
        if agreed == before:
            return agreed
