"""Device blocks that a load holds while it is under way."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.kv.blocks import Block
from octavo.kv.hashing import BlockHash


class MissingBlock(NamedTuple):
    """A block that a request would go on from if it were on the device."""

    group: int
    position: int
    """In the chain."""
    block_hash: BlockHash


class Reservation:
    """Blocks referenced by a load, not by a request: those it fills, and those on the device that they stand behind."""

    __slots__ = ("parents", "reads_in_flight", "targets")

    def __init__(self, parents: Sequence[Block], targets: Sequence[Block]) -> None:
        self.parents = parents
        """Published ones, first positions first."""
        self.targets = targets
        """Unpublished until the load has ended; first positions first."""
        self.reads_in_flight = any(block.in_flight for block in parents)
        """Whether some of `parents` are yet to be computed by a step."""
