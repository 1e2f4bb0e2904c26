"""Blocks and the pool they come from."""

from collections.abc import Callable, Iterator

from octavo.kv.hashing import BlockHash

NULL_BLOCK_ID = 0
"""Padding of block tables: never allocated, never written, never read."""


class Block:
    """One block of KV memory as the deciding side sees it. Mutated by the pool and the prefix index only."""

    __slots__ = (
        "group",
        "hash",
        "id",
        "in_flight",
        "next",
        "num_children",
        "parent",
        "parent_key",
        "prev",
        "ref",
        "tokens",
    )

    def __init__(self, block_id: int) -> None:
        self.id = block_id
        self.ref = 0
        """Entries of block tables that name this block, and copies in flight that read it."""
        self.group = 0
        """Cache group whose layers the block holds; meaningful while `ref > 0` or `hash` is set."""
        self.hash: BlockHash | None = None
        """Set while the block is published, i.e. found by the prefix index of its group."""
        self.parent: Block | None = None
        """The published block before this one in its chain; None for a first block, and in groups that let go of
        blocks out of reach."""
        self.num_children = 0
        """Published blocks whose parent this is."""
        self.in_flight = False
        """Published for a step that has not been computed yet."""
        self.tokens = b""
        """Packed token ids of a published block that sub-block matches may look at; empty for others."""
        self.parent_key = b""
        """What names the place of `tokens`, see `Children`."""
        self.prev: Block | None = None
        self.next: Block | None = None

    def __repr__(self) -> str:
        name = self.hash.hex()[:8] if self.hash else "unpublished"
        return f"Block({self.id}, ref={self.ref}, group={self.group}, {name}, children={self.num_children})"


class FreeList:
    """A doubly linked list through the blocks themselves: removal from the middle in O(1) and without allocation,
    which a prefix hit on a free block needs and a deque cannot give.

    A mark stands between two parts, and blocks can be put before it:

        front ... | mark | ... back
    """

    def __init__(self) -> None:
        self._end, self._mark = Block(-1), Block(-2)
        self._end.prev = self._end.next = self._end
        self._link(self._end, self._mark)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Block]:
        """From the block to be reused next to the one to be reused last."""
        block = self._end.next
        while block is not self._end:
            assert block is not None
            if block is not self._mark:
                yield block
            block = block.next

    @property
    def first(self) -> Block | None:
        """The block to be reused next; None in an empty list."""
        block = self._end.next
        if block is self._mark:
            block = self._mark.next
        return block if self._length else None

    def push_front(self, block: Block) -> None:
        """Makes `block` the next to be reused."""
        self._insert(self._end, block)

    def push_before_mark(self, block: Block) -> None:
        """Makes `block` the last of the first part."""
        assert self._mark.prev is not None
        self._insert(self._mark.prev, block)

    def push_back(self, block: Block) -> None:
        """Makes `block` the last to be reused."""
        assert self._end.prev is not None
        self._insert(self._end.prev, block)

    def pop_front(self) -> Block:
        """Takes the block to be reused next. The list must not be empty."""
        block = self.first
        assert block is not None
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        """Unlinks a block of this list."""
        assert block.prev is not None and block.next is not None
        block.prev.next = block.next
        block.next.prev = block.prev
        block.prev = block.next = None
        self._length -= 1

    def _insert(self, before: Block, block: Block) -> None:
        self._link(before, block)
        self._length += 1

    @staticmethod
    def _link(before: Block, block: Block) -> None:
        after = before.next
        assert after is not None
        block.prev, block.next = before, after
        before.next = after.prev = block


class BlockPool:
    """All blocks of a KV memory: reference counts and the order of reuse.

    The order of reuse of the blocks without references:

        | unpublished, last freed first | never used, by number | let go of | published, least recently used first |

    Those never used are a number until they are taken: a pool of a quarter of a million blocks costs nothing at start,
    and memory only for what was ever needed at one time. The free list holds the others. Holders release their blocks
    last-to-first, so of one chain the deeper block always stands nearer to the front.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        """All of them, the null block included."""
        self.blocks = [Block(NULL_BLOCK_ID)]
        """Those that exist, by number: the null block and whatever was ever used."""
        self.null = self.blocks[NULL_BLOCK_ID]
        self._free = FreeList()

    @property
    def num_usable(self) -> int:
        """Blocks that requests can hold: all but the null block."""
        return self.num_blocks - 1

    @property
    def num_never_used(self) -> int:
        """Free blocks that nobody has ever held."""
        return self.num_blocks - len(self.blocks)

    @property
    def num_free(self) -> int:
        """Blocks without references, published or not."""
        return len(self._free) + self.num_never_used

    def free_blocks(self) -> Iterator[Block]:
        """Free blocks that were used before, in the order of reuse."""
        return iter(self._free)

    def take(self) -> Block:
        """Hands out the next block of the order of reuse, with one reference.

        The caller makes sure that one is free, unpublishes the block if it has a hash, and names its group.
        """
        first = self._free.first
        if self.num_never_used and (first is None or first.hash is not None):
            block = Block(len(self.blocks))
            self.blocks.append(block)
        else:
            block = self._free.pop_front()
        block.ref = 1
        return block

    def touch(self, block: Block) -> None:
        """Adds a reference to a published block."""
        if block.ref == 0:
            self._free.remove(block)
        block.ref += 1

    def release(self, block: Block) -> None:
        """Drops a reference. Without any left a published block stays findable until it is reused."""
        self._drop(block, self._free.push_back)

    def let_go(self, block: Block) -> None:
        """Drops a reference as `release` does, but a published block goes before all that are kept for their use: in
        the middle of a prefix, out of reach, hardly anybody can go on from it."""
        self._drop(block, self._free.push_before_mark)

    def _drop(self, block: Block, keep: Callable[[Block], None]) -> None:
        """`keep` says where a published block without references goes; an unpublished one is reused first."""
        block.ref -= 1
        if block.ref == 0:
            (self._free.push_front if block.hash is None else keep)(block)

    def demote(self, block: Block) -> None:
        """Moves a block that lost its hash to where the order of reuse wants it; no-op while it is referenced."""
        if block.ref == 0:
            self._free.remove(block)
            self._free.push_front(block)
