"""The laws that block bookkeeping must obey between any two calls of the manager."""

from collections import Counter
from collections.abc import Sequence

from octavo.kv.blocks import NULL_BLOCK_ID, Block, BlockPool
from octavo.kv.children import Children
from octavo.kv.groups import GroupPolicy
from octavo.kv.prefix import PrefixIndex
from octavo.kv.request_blocks import RequestBlocks


def check_conservation(
    pool: BlockPool,
    groups: Sequence[GroupPolicy],
    children: Children | None,
    holders: Sequence[RequestBlocks],
    uncommitted: Sequence[Block],
    in_transit: Sequence[Block] = (),
) -> None:
    """Verifies that no block is lost, shared by mistake, or cached without its prefix.

    Args:
        uncommitted: blocks published for steps that have not been computed.
        in_transit: blocks that loads hold, one entry for each reference.

    Raises:
        AssertionError: naming the law and the block.
    """
    _check_references(pool, holders, in_transit)
    _check_free_list(pool)
    for number, group in enumerate(groups):
        _check_index(group.index, number)
        if group.is_closed:
            _check_closure(group.index)
            _check_eviction_order(pool, number)
    _check_flights(groups, uncommitted)
    if children is not None:
        _check_children(children, groups)
    for held in holders:
        _check_tables(held, groups)


def _demand(holds: bool, law: str, *facts: object) -> None:
    """Like `assert`, but kept under `python -O`."""
    if not holds:
        raise AssertionError(": ".join([law, *map(str, facts)]))


def _check_references(pool: BlockPool, holders: Sequence[RequestBlocks], in_transit: Sequence[Block]) -> None:
    entries = Counter(block.id for held in holders for table in held.tables for block in table)
    del entries[NULL_BLOCK_ID]
    sources = Counter(block.id for held in holders if held.partial_hit for block in held.partial_hit.sources)
    entries += sources
    entries.update(block.id for block in in_transit)
    for block in pool.blocks:
        law = "references are the entries of all tables, the sources of copies and the blocks of loads"
        _demand(block.ref == entries[block.id], law, block, entries[block.id])
    _demand(entries[NULL_BLOCK_ID] == 0, "nobody holds the null block")


def _check_free_list(pool: BlockPool) -> None:
    free = list(pool.free_blocks())
    used = sum(block.ref > 0 for block in pool.blocks)
    num_free = len(free) + pool.num_never_used
    _demand(num_free == pool.num_free, "the free list is as long as it says", num_free, pool.num_free)
    _demand(num_free + used + 1 == pool.num_blocks, "free + used + 1 = N", num_free, used, pool.num_blocks)
    _demand([block.id for block in pool.blocks] == list(range(len(pool.blocks))), "blocks stand by number")
    _demand(len({block.id for block in free}) == len(free), "no block is free twice")
    _demand(all(block.ref == 0 for block in free), "a free block has no references")
    published = [block.hash is not None for block in free]
    _demand(published == sorted(published), "unpublished blocks are reused before published ones")


def _check_index(index: PrefixIndex, group: int) -> None:
    for block in index:
        _demand(block.hash is not None and index.get(block.hash) is block, "a published block is found", block)
        _demand(block.group == group, "a published block belongs to the group of its index", block, group)


def _check_closure(index: PrefixIndex) -> None:
    children = Counter(block.parent.id for block in index if block.parent is not None)
    for block in index:
        _demand(block.num_children == children[block.id], "children are counted", block, children[block.id])
        if block.parent is not None:
            _demand(index.get(block.parent.hash or b"") is block.parent, "a parent is published", block)
            _demand(block.ref <= block.parent.ref, "who holds a block holds its parent", block, block.parent)


def _check_flights(groups: Sequence[GroupPolicy], uncommitted: Sequence[Block]) -> None:
    in_flight = sorted(block.id for group in groups for block in group.index if block.in_flight)
    listed = sorted(block.id for block in uncommitted)
    _demand(in_flight == listed, "blocks in flight are those published for steps not done", in_flight, listed)
    for block in (block for group in groups for block in group.index if not block.in_flight):
        parent_has_landed = block.parent is None or not block.parent.in_flight
        _demand(parent_has_landed, "a computed block has a computed parent", block, block.parent)


def _check_children(children: Children, groups: Sequence[GroupPolicy]) -> None:
    listed = {block.id: block for block in children}
    _demand(len(listed) == len(children), "no block is a child twice")
    computed = {block.id: block for group in groups for block in group.index if block.tokens and not block.in_flight}
    _demand(listed == computed, "computed blocks with known tokens are children, and no others", listed, computed)


def _check_eviction_order(pool: BlockPool, group: int) -> None:
    """Walking the free list, a published block must come after all its published children."""
    waiting: Counter[Block] = Counter()
    for block in pool.free_blocks():
        if block.hash is not None and block.group == group:
            _demand(waiting[block] == block.num_children, "children are evicted before their parent", block)
            if block.parent is not None:
                waiting[block.parent] += 1


def _check_tables(held: RequestBlocks, groups: Sequence[GroupPolicy]) -> None:
    _demand(len({len(table) for table in held.tables}) == 1, "tables of all groups are equally long")
    for table, num_published, num_let_go, group in zip(
        held.tables, held.num_published, held.num_let_go, groups, strict=True
    ):
        _demand(num_published <= len(table), "published entries exist", num_published, len(table))
        _demand(num_let_go == 0 or not group.is_closed, "a group that needs all blocks lets go of none", num_let_go)
        for position, block in enumerate(table):
            if position < num_let_go:
                _demand(block.id == NULL_BLOCK_ID, "an entry let go of is the null block", position, block)
            elif position < num_published:
                _demand(block.hash == held.hashes[position], "a published entry has its own hash", position, block)
            else:
                private = block.id != NULL_BLOCK_ID and block.hash is None and block.ref == 1
                _demand(private, "an entry behind the published ones is private", position, block)
    _demand(held.num_settled == min(held.num_published), "settled entries are published in all groups")
