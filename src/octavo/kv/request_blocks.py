"""What one request holds of the KV memory: its block tables and the names of its blocks."""

from collections.abc import Sequence

from octavo.kv.blocks import Block
from octavo.kv.hashing import BlockHash

BlockIds = tuple[tuple[int, ...], ...]
"""[group] -> block ids in table order."""


class RequestBlocks:
    """The KV side of one request. An opaque handle to everybody but the `KVManager`, which alone mutates it.

    One table per cache group, entry i for positions `i * block_size ..`:

        table        | published, shared or own | filled or being filled, own |
        entry        0            num_published[group]               len(table)

    A table never holds an own copy of a published block among its first `num_published` entries, so whoever holds a
    block also holds all blocks before it in the chain.
    """

    __slots__ = (
        "hashes",
        "max_blocks",
        "num_published",
        "num_settled",
        "reads_cache",
        "salt",
        "swaps",
        "tables",
        "token_ids",
    )

    def __init__(self, token_ids: Sequence[int], num_groups: int, *, salt: bytes, reads_cache: bool) -> None:
        self.token_ids = token_ids
        """The request's known tokens; the owner appends to the list, the manager reads it."""
        self.salt = salt
        self.reads_cache = reads_cache
        self.hashes: list[BlockHash] = []
        """Names of the first full blocks, as many as were needed so far."""
        self.tables: list[list[Block]] = [[] for _ in range(num_groups)]
        self.num_published = [0] * num_groups
        self.num_settled = 0
        """Entries that are published in every group: the smallest of `num_published`."""
        self.max_blocks = 0
        """Most blocks held at one time, over all groups."""
        self.swaps: list[tuple[int, int, int]] = []
        """(group, position, block id): table entries changed since the executing side last heard of them."""

    @property
    def num_blocks(self) -> int:
        """Blocks held, over all groups."""
        return sum(len(table) for table in self.tables)

    def block_ids(self) -> BlockIds:
        """Ids of all blocks held."""
        return tuple(tuple(block.id for block in table) for table in self.tables)

    def take_swaps(self) -> list[tuple[int, int, int]]:
        """Returns `swaps` and empties it."""
        swaps, self.swaps = self.swaps, []
        return swaps
