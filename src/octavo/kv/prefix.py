"""The prefix index of one cache group: block hash -> published block."""

from collections.abc import Callable, Iterator, Sequence

from octavo.kv.blocks import Block
from octavo.kv.hashing import BlockHash


class PrefixIndex:
    """Published blocks of one group.

    Invariant of groups that keep all blocks (prefix closure): with a block, all blocks before it in its chain are
    published. It holds because a block is published under a published parent and removed only without children, and
    it is what makes the longest hit a binary search. Groups that let go of blocks out of reach publish without
    parents; their index promises nothing about neighbours.
    """

    def __init__(self) -> None:
        self._block_by_hash: dict[BlockHash, Block] = {}
        self.on_publish: Callable[[BlockHash], None] | None = None
        """Called with each name that becomes findable."""

    def __len__(self) -> int:
        return len(self._block_by_hash)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._block_by_hash.values())

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._block_by_hash

    def get(self, block_hash: BlockHash) -> Block | None:
        """The published block of this hash."""
        return self._block_by_hash.get(block_hash)

    def __getitem__(self, block_hash: BlockHash) -> Block:
        return self._block_by_hash[block_hash]

    def longest_hit(self, hashes: Sequence[BlockHash], limit: int) -> int:
        """Largest k <= limit such that blocks 0 .. k - 1 of a chain are published; O(log limit).

        hashes   0 1 2 3 | 4 5 6 7        by closure the published ones are a prefix,
        found    y y y y | n n n n        so the border can be bisected
        """
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if hashes[middle - 1] in self._block_by_hash:
                low = middle
            else:
                high = middle - 1
        return low

    def publish(self, block: Block, block_hash: BlockHash, parent: Block | None) -> None:
        """Makes `block` findable. `parent` is the published block before it, where closure is to hold; `block_hash`
        must be new here."""
        block.hash = block_hash
        block.parent = parent
        if parent is not None:
            parent.num_children += 1
        self._block_by_hash[block_hash] = block
        if self.on_publish is not None:
            self.on_publish(block_hash)

    def remove(self, block: Block) -> None:
        """Makes a childless published block unfindable."""
        if block.num_children or block.hash is None:
            raise RuntimeError(f"{block} cannot leave the prefix index: it must be published and without children")
        del self._block_by_hash[block.hash]
        block.hash = None
        if block.parent is not None:
            block.parent.num_children -= 1
            block.parent = None

    def clear(self) -> None:
        """Forgets all blocks."""
        for block in self._block_by_hash.values():
            block.hash = block.parent = None
            block.num_children = 0
            block.tokens = b""
            block.in_flight = False
        self._block_by_hash.clear()
