"""What one request holds of the KV memory: its block tables and the names of its blocks."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.kv.blocks import Block
from octavo.kv.hashing import BlockHash, salt_key

BlockIds = tuple[tuple[int, ...], ...]
"""[group] -> block ids in table order."""


class PartialHit(NamedTuple):
    """A hit that ends inside a block: what is to be copied into the request's own block before its first step."""

    sources: list[Block]
    """[group]; referenced until the step is done."""
    position: int
    """Table entry of the block copied into."""
    num_tokens: int


class RequestBlocks:
    """The KV side of one request. An opaque handle to everybody but the `KVManager`, which alone mutates it.

    One table per cache group, entry i for positions `i * block_size ..`:

        table        | null block: out of reach | published, shared or own | filled or being filled, own |
        entry        0                num_let_go[group]        num_published[group]               len(table)

    A table never holds an own copy of a published block among its first `num_published` entries, so in a group that
    lets go of nothing whoever holds a block also holds all blocks before it in the chain. Where nothing is published
    `num_let_go` passes `num_published`.
    """

    __slots__ = (
        "cache_salt",
        "hashes",
        "junction",
        "max_blocks",
        "num_full",
        "num_let_go",
        "num_published",
        "num_settled",
        "partial_hit",
        "reads_cache",
        "salt",
        "swaps",
        "tables",
        "token_ids",
    )

    def __init__(self, token_ids: Sequence[int], num_groups: int, *, cache_salt: str | None, reads_cache: bool) -> None:
        self.token_ids = token_ids
        """The request's known tokens; the owner appends to the list, the manager reads it."""
        self.cache_salt = cache_salt
        self.salt = salt_key(cache_salt)
        self.reads_cache = reads_cache
        self.hashes: list[BlockHash] = []
        """Names of the first full blocks, as many as were needed so far."""
        self.tables: list[list[Block]] = [[] for _ in range(num_groups)]
        self.num_published = [0] * num_groups
        self.num_let_go = [0] * num_groups
        """Leading entries that are the null block."""
        self.num_full = 0
        """Blocks that are computed to their end, as `settle` last saw it."""
        self.partial_hit: PartialHit | None = None
        """From adoption to the end of the first step."""
        self.junction = 0
        """Blocks of its known tokens that groups of full attention had cached when the request was admitted: where
        it parted from others, so where more may part."""
        self.num_settled = 0
        """Entries that are published in every group: the smallest of `num_published`."""
        self.max_blocks = 0
        """Most blocks held at one time, over all groups."""
        self.swaps: list[tuple[int, int, int]] = []
        """(group, position, block id): table entries changed since the executing side last heard of them; 0 if the
        block has got out of reach."""

    @property
    def num_blocks(self) -> int:
        """Blocks held, over all groups."""
        return sum(map(len, self.tables)) - sum(self.num_let_go)

    def block_ids(self) -> BlockIds:
        """Ids of all blocks held; 0 for entries out of reach."""
        return tuple(tuple(block.id for block in table) for table in self.tables)

    @property
    def num_copied_tokens(self) -> int:
        """Cached tokens that the next step copies instead of sharing their block."""
        return 0 if self.partial_hit is None else self.partial_hit.num_tokens

    def copies(self) -> list[tuple[int, int, int, int]]:
        """(group, source id, target id, tokens): what the request's first step copies before it writes. To be asked
        for after the blocks of that step have been allocated."""
        hit = self.partial_hit
        if hit is None:
            return []
        return [
            (group, source.id, self.tables[group][hit.position].id, hit.num_tokens)
            for group, source in enumerate(hit.sources)
        ]

    def take_swaps(self) -> list[tuple[int, int, int]]:
        """Returns `swaps` and empties it."""
        swaps, self.swaps = self.swaps, []
        return swaps
