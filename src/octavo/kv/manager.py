"""The KV manager: which block a request gets, what it shares, and when a block can be found again."""

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import NamedTuple

from octavo.kv.blocks import Block, BlockPool
from octavo.kv.conservation import check_conservation
from octavo.kv.groups import AttentionGroup, GroupPolicy, common_hit
from octavo.kv.hashing import BlockHash, BlockHasher, salt_key
from octavo.kv.request_blocks import BlockIds, RequestBlocks
from octavo.kv.spec import KVLayout


class PrefixHit(NamedTuple):
    """What of a request's tokens is in the cache now. Valid until the next call that allocates."""

    num_blocks: int
    """Per group."""
    num_tokens: int
    num_free_blocks: int
    """Hit blocks, over all groups, that nobody holds: adopting the hit takes them out of the free blocks."""


class KVManager:
    """Owner of all block tables and of the prefix cache. Pure bookkeeping: no clock, no bytes, no I/O.

    The life of a request's blocks: `open` -> `match` -> `adopt` -> (`allocate` -> step -> `settle`)* -> `free`.
    `allocate` makes the blocks that its step fills findable at once; `commit` ends the time in which that can be taken
    back by `withdraw` (the step was not issued for this request) or `revoke` (its part of the step failed).
    """

    def __init__(self, layout: KVLayout, *, enable_prefix_caching: bool = True, fingerprint: str = "") -> None:
        """
        Args:
            layout: blocks and cache groups.
            enable_prefix_caching: False: nothing is ever published or found.
            fingerprint: see `hashing.chain_root`.
        """
        self.layout = layout
        self.num_evicted = 0
        """Published blocks reused for other tokens, since start."""
        self._caching = enable_prefix_caching
        self._block_size = layout.block_size
        self._pool = BlockPool(layout.num_blocks)
        self._groups: list[GroupPolicy] = [AttentionGroup(group) for group in layout.groups]
        self._hasher = BlockHasher(fingerprint, layout.block_size)
        self._holders: dict[RequestBlocks, None] = {}
        self._publications: list[tuple[RequestBlocks, Block]] = []
        """By whom and what was published for steps that are not committed, parents before children."""
        self._no_blocks: BlockIds = ((),) * len(layout.groups)

    @property
    def num_blocks(self) -> int:
        """Usable blocks: all but the null block."""
        return self._pool.num_usable

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        return self._pool.num_free

    @property
    def num_cached_blocks(self) -> int:
        """Blocks that can be found by their content, held or not."""
        return sum(len(group.index) for group in self._groups)

    def open(self, token_ids: list[int], *, cache_salt: str | None = None, reads_cache: bool = True) -> RequestBlocks:
        """Starts the bookkeeping of a request; takes no block.

        Args:
            token_ids: its known tokens, at least one. The list is kept and read again as it grows.
            cache_salt: requests find each other's blocks only under equal salts.
            reads_cache: False: takes no hits (but its blocks can be found by others).
        """
        return RequestBlocks(
            token_ids, len(self._groups), salt=salt_key(cache_salt), reads_cache=reads_cache and self._caching
        )

    def match(self, held: RequestBlocks) -> PrefixHit:
        """The longest cached prefix that all groups accept, in whole blocks and at most n - 1 tokens: the last token
        must run to give logits. Changes nothing."""
        if not held.reads_cache:
            return PrefixHit(0, 0, 0)
        limit = (len(held.token_ids) - 1) // self._block_size
        self._name_blocks(held, limit)
        count = common_hit(self._groups, held.hashes, limit)
        free = sum(block.ref == 0 for blocks in self._hit_blocks(held, count) for block in blocks)
        return PrefixHit(count, count * self._block_size, free)

    def hit_name(self, held: RequestBlocks, position: int) -> BlockHash | None:
        """Name of the whole block at `position`; None where `match` could find none, whatever is cached."""
        if position >= self._hit_limit(held):
            return None
        self._name_blocks(held, position + 1)
        return held.hashes[position]

    def num_hit_blocks(self, held: RequestBlocks) -> int:
        """Blocks per group that `match` would find now; O(log n) for full attention."""
        limit = self._hit_limit(held)
        self._name_blocks(held, limit)
        return common_hit(self._groups, held.hashes, limit)

    def is_longest_hit(self, held: RequestBlocks, count: int) -> bool:
        """Whether `num_hit_blocks` would say `count` > 0; O(1), exact for full attention, where closure decides it
        from the blocks on both sides of the border."""
        names, limit = held.hashes, self._hit_limit(held)
        if not count <= min(len(names), limit) or any(names[count - 1] not in group.index for group in self._groups):
            return False
        follower = self.hit_name(held, count)
        return follower is None or any(follower not in group.index for group in self._groups)

    def num_private_blocks(self, held: RequestBlocks) -> int:
        """Blocks, over all groups, that only this request holds: what is free once it ends. O(log blocks).

        Who holds a block holds all before it, so in a table references never grow:

            references   3 3 2 2 | 1 1 1
        """
        return sum(len(table) - bisect_left(table, True, key=_is_private) for table in held.tables)

    def listen(self, on_publish: Callable[[BlockHash], None]) -> None:
        """Has `on_publish` called with each name that becomes findable in some group, until another one listens."""
        for group in self._groups:
            group.index.on_publish = on_publish

    def num_blocks_needed(self, hit: PrefixHit, num_tokens: int) -> int:
        """Free blocks that a request with this hit takes to hold `num_tokens` tokens."""
        blocks_per_group = -(-num_tokens // self._block_size)
        return len(self._groups) * max(0, blocks_per_group - hit.num_blocks) + hit.num_free_blocks

    def adopt(self, held: RequestBlocks, hit: PrefixHit) -> None:
        """Puts the blocks of a hit at the start of the (empty) tables of a request."""
        if held in self._holders:
            raise RuntimeError("a request that already holds blocks cannot adopt a prefix hit")
        for group, blocks in enumerate(self._hit_blocks(held, hit.num_blocks)):
            for block in blocks:
                self._pool.touch(block)
            held.tables[group] = blocks
            held.num_published[group] = hit.num_blocks
        held.num_settled = hit.num_blocks
        self._holders[held] = None

    def allocate(self, held: RequestBlocks, num_tokens: int) -> BlockIds | None:
        """Makes the tables cover the first `num_tokens` known tokens and publishes the blocks that become full.

        Returns:
            [group] -> ids appended to its table; None, and nothing changed, if too few blocks are free.
        """
        missing = -(-num_tokens // self._block_size) - len(held.tables[0])
        if missing <= 0:
            new_ids = self._no_blocks
        elif missing * len(self._groups) > self._pool.num_free:
            return None
        else:
            new_ids = tuple(self._grow(table, group, missing) for group, table in enumerate(held.tables))
            held.max_blocks = max(held.max_blocks, held.num_blocks)
        if num_tokens // self._block_size > held.num_settled and self._caching:
            self._publish(held, num_tokens // self._block_size)
        return new_ids

    def settle(self, held: RequestBlocks, num_computed_tokens: int) -> None:
        """After a step: full blocks that could not be published because their hash already was are dropped for the
        published twin; blocks behind them are published.

        Equal hash means equal bits, so the switch is invisible to the request. It is put down in `held.swaps`, which
        the executing side must hear before it runs the request again.
        """
        num_full = num_computed_tokens // self._block_size
        if num_full <= held.num_settled or not self._caching:
            return
        self._name_blocks(held, num_full)
        for group in range(len(self._groups)):
            for position in range(held.num_published[group], num_full):
                self._settle_entry(held, group, position)
            held.num_published[group] = num_full
        held.num_settled = num_full

    def commit(self) -> None:
        """The step in flight is done, what it published stays."""
        self._publications.clear()

    def free(self, held: RequestBlocks) -> None:
        """Releases all blocks of a request, deepest first; what is published stays findable. Idempotent."""
        for position in range(len(held.tables[0]) - 1, -1, -1):
            for table in held.tables:
                self._pool.release(table[position])
        held.tables = [[] for _ in self._groups]
        held.num_published = [0] * len(self._groups)
        held.num_settled = 0
        held.swaps = []
        self._holders.pop(held, None)

    def withdraw(self, held: RequestBlocks) -> None:
        """Frees a request that was allocated for a step which is now planned without it.

        What it published for that step will not be computed, so it is unpublished. Nobody can have found it yet:
        hits are looked up only after the last withdrawal of a step.
        """
        self._unpublish([block for owner, block in self._publications if owner is held])
        self.free(held)

    def is_withdrawable(self, held: RequestBlocks) -> bool:
        """Whether `withdraw` would take nothing from others: nobody else holds what it published for this step."""
        return all(block.ref == 1 for owner, block in self._publications if owner is held)

    def revoke(self, failed: Collection[RequestBlocks]) -> list[RequestBlocks]:
        """Unpublishes what the step in flight filled with garbage: the blocks published for it by requests whose part
        failed (they may be freed by now), and all blocks computed on top of those.

        Returns:
            The other requests whose tables hold such a block. Their part of the step is garbage, too; they must be
            freed before anything else is allocated.
        """
        garbage: set[Block] = set()
        for owner, block in self._publications:
            if owner in failed or block.parent in garbage:
                garbage.add(block)
        touched = [
            held
            for held in self._holders
            if held not in failed and any(block in garbage for table in held.tables for block in table)
        ]
        self._unpublish([block for _, block in self._publications if block in garbage])
        return touched

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached blocks. Refused, with False, while any block is held."""
        if self._pool.num_free < self._pool.num_usable:
            return False
        for group in self._groups:
            group.index.clear()
        return True

    def check(self) -> None:
        """Verifies conservation, see `check_conservation`. O(blocks); for tests and idle moments."""
        check_conservation(self._pool, [group.index for group in self._groups], list(self._holders))

    def _hit_limit(self, held: RequestBlocks) -> int:
        return (len(held.token_ids) - 1) // self._block_size if held.reads_cache else 0

    def _hit_blocks(self, held: RequestBlocks, count: int) -> list[list[Block]]:
        """[group] -> the published blocks of the first `count` names."""
        found = [[group.index.get(name) for name in held.hashes[:count]] for group in self._groups]
        return [[block for block in blocks if block is not None] for blocks in found]

    def _name_blocks(self, held: RequestBlocks, count: int) -> None:
        if count > len(held.hashes):
            self._hasher.extend(held.hashes, held.token_ids, count, held.salt)

    def _grow(self, table: list[Block], group: int, count: int) -> tuple[int, ...]:
        """Appends `count` fresh blocks; the caller has made sure that they are free."""
        new = [self._take(group) for _ in range(count)]
        table += new
        return tuple(block.id for block in new)

    def _take(self, group: int) -> Block:
        block = self._pool.take()
        if block.hash is not None:
            self._groups[block.group].index.remove(block)
            self.num_evicted += 1
        block.group = group
        return block

    def _publish(self, held: RequestBlocks, num_full: int) -> None:
        """Publishes full blocks in order, per group up to the first whose hash is taken: that one waits for
        `settle`, and so do those behind it, whose published parent is not (yet) in the table."""
        self._name_blocks(held, num_full)
        for group, policy in enumerate(self._groups):
            position = held.num_published[group]
            while position < num_full and policy.index.get(held.hashes[position]) is None:
                self._publish_entry(held, group, position)
                self._publications.append((held, held.tables[group][position]))
                position += 1
            held.num_published[group] = position
        held.num_settled = min(held.num_published)

    def _publish_entry(self, held: RequestBlocks, group: int, position: int) -> None:
        table = held.tables[group]
        parent = table[position - 1] if position else None
        self._groups[group].index.publish(table[position], held.hashes[position], parent)

    def _settle_entry(self, held: RequestBlocks, group: int, position: int) -> None:
        twin = self._groups[group].index.get(held.hashes[position])
        if twin is None:
            self._publish_entry(held, group, position)
            return
        own = held.tables[group][position]
        self._pool.touch(twin)
        held.tables[group][position] = twin
        held.swaps.append((group, position, twin.id))
        self._pool.release(own)

    def _unpublish(self, blocks: list[Block]) -> None:
        """Takes blocks, given parents first, out of their indices and out of the uncommitted publications."""
        for block in reversed(blocks):
            self._groups[block.group].index.remove(block)
            self._pool.demote(block)
        gone = set(blocks)
        self._publications = [entry for entry in self._publications if entry[1] not in gone]


def _is_private(block: Block) -> bool:
    return block.ref == 1
