"""Which blocks can be found by their content: published ahead of the step that fills them, or when they are there."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from octavo.kv.blocks import Block, BlockPool
from octavo.kv.children import Children
from octavo.kv.groups import GroupPolicy
from octavo.kv.hashing import BlockHash, BlockHasher, salt_key
from octavo.kv.record import BlockRecord, CacheObserver, Tier
from octavo.kv.request_blocks import RequestBlocks


class Published(NamedTuple):
    """A block that a step will fill."""

    owner: RequestBlocks
    block: Block
    position: int
    """Table entry of the owner."""


class Publications:
    """The one place where blocks enter and leave the prefix indices.

    A block published ahead, for a step that has not been computed, can be found but not yet relied upon: it may be
    taken back. What fills it is told to observers when that step is committed, and only then may a hit end inside it.
    """

    def __init__(
        self,
        pool: BlockPool,
        groups: Sequence[GroupPolicy],
        lead: int,
        children: Children | None,
        hasher: BlockHasher,
    ) -> None:
        """
        Args:
            lead: the group among whose blocks sub-block matches are looked for.
            children: of computed blocks of that group; None: nobody looks for sub-block matches.
        """
        self.observers: list[CacheObserver] = []
        """Hear of every change of what is stored on the device, in the order in which it happens."""
        self._pool = pool
        self._groups = groups
        self._lead = lead
        self._children = children
        self._hasher = hasher
        self._steps: deque[list[Published]] = deque([[]])
        """What was published ahead, for each step that is not committed, parents before children; the last one is the
        step under planning."""

    # ---- in and out

    def publish_ahead(self, held: RequestBlocks, group: int, position: int) -> None:
        """Makes a block of a request findable that the step under planning fills."""
        block = self._enter(held, group, position)
        block.in_flight = True
        self._steps[-1].append(Published(held, block, position))

    def publish(self, held: RequestBlocks, group: int, position: int) -> None:
        """Makes a computed block of a request findable."""
        self._be_there(self._enter(held, group, position), held, position)

    def publish_loaded(self, block: Block, record: BlockRecord) -> bool:
        """Makes a block findable whose bytes have come from elsewhere. False, and nothing done, if it is there already,
        or if it has lost the computed block before it, where closure is to hold."""
        policy = self._groups[record.group]
        parent = None
        if policy.is_closed and record.parent_hash is not None:
            parent = policy.index.get(record.parent_hash)
            if parent is None or parent.in_flight:
                return False
        if record.block_hash in policy.index:
            return False
        policy.index.publish(block, record.block_hash, parent)
        if record.group == self._lead and self._children is not None:
            block.parent_key = record.parent_hash or self._hasher.root + salt_key(record.cache_salt)
            block.tokens = self._hasher.pack(record.token_ids)
            self._children.add(block)
        for observer in self.observers:
            observer.stored(Tier.DEVICE, record)
        return True

    def forget(self, block: Block) -> None:
        """Makes a published block unfindable that was computed, or that has been taken from the uncommitted ones."""
        name, was_there = block.hash, not block.in_flight
        self._groups[block.group].index.remove(block)
        if block.tokens:
            if self._children is not None and was_there:
                self._children.remove(block)
            block.tokens = b""
        block.in_flight = False
        if was_there and name is not None:
            for observer in self.observers:
                observer.removed(Tier.DEVICE, block.group, name)

    def clear(self) -> None:
        """Makes everything unfindable; no block may be held."""
        for group in self._groups:
            cached = list(group.index)
            group.index.clear()
            for block in cached:
                self._pool.demote(block)
        if self._children is not None:
            self._children.clear()
        for step in self._steps:
            step.clear()
        for observer in self.observers:
            observer.cleared(Tier.DEVICE)

    # ---- steps

    def issue(self) -> None:
        """The step under planning is on its way."""
        self._steps.append([])

    def commit(self) -> None:
        """The oldest step is done, what it published stays. With none in flight that is the one under planning."""
        for owner, block, position in self._steps.popleft():
            block.in_flight = False
            self._be_there(block, owner, position)
        if not self._steps:
            self._steps.append([])

    def uncommitted(self) -> Iterator[Published]:
        """What was published for all steps that are not committed, parents before children."""
        return chain.from_iterable(self._steps)

    def planned_by(self, held: RequestBlocks) -> list[Block]:
        """What a request published for the step under planning."""
        return [block for owner, block, _ in self._steps[-1] if owner is held]

    def take_back(self, blocks: list[Block]) -> None:
        """Makes blocks, given parents first, unfindable that will not be computed."""
        for block in reversed(blocks):
            self.forget(block)
            self._pool.demote(block)
        gone = set(blocks)
        for step in self._steps:
            step[:] = [entry for entry in step if entry.block not in gone]

    def spoiled_by(
        self, failed: Collection[RequestBlocks], holders: Collection[RequestBlocks]
    ) -> tuple[list[Block], set[RequestBlocks]]:
        """What is garbage if these requests' parts of the oldest step are: blocks not committed, parents first, and all
        requests that have read or will read one, the failed ones included.

        Args:
            holders: requests that hold blocks.
        """
        spoiled = set(failed)
        suspects = dict.fromkeys([*holders, *(entry.owner for entry in self.uncommitted())])
        while True:
            garbage = {entry.block for entry in self.uncommitted() if entry.owner in spoiled}
            names = {name for held in spoiled for name in held.hashes}
            readers = [
                held for held in suspects if held not in spoiled and _has_read(held, held in holders, garbage, names)
            ]
            if not readers:
                return [entry.block for entry in self.uncommitted() if entry.block in garbage], spoiled
            spoiled.update(readers)

    def is_misled(self, held: RequestBlocks, spoiled: set[RequestBlocks]) -> bool:
        """Whether a request holds a block that is not committed and garbage by the fault of another one of these."""
        garbage = {entry.block for entry in self.uncommitted() if entry.owner in spoiled and entry.owner is not held}
        return any(block in garbage for table in held.tables for block in table)

    # ---- one block

    def parent_key(self, held: RequestBlocks, position: int) -> bytes:
        """See `Children`. A salted root is longer than any hash."""
        return held.hashes[position - 1] if position else self._hasher.root + held.salt

    def _enter(self, held: RequestBlocks, group: int, position: int) -> Block:
        policy, table = self._groups[group], held.tables[group]
        block = table[position]
        parent = table[position - 1] if position and policy.is_closed else None
        policy.index.publish(block, held.hashes[position], parent)
        if group == self._lead and self._children is not None:
            block.parent_key = self.parent_key(held, position)
            block.tokens = self._hasher.pack(self._tokens(held, position))
        return block

    def _be_there(self, block: Block, owner: RequestBlocks, position: int) -> None:
        """The bits of a published block are there now."""
        if block.tokens and self._children is not None:
            self._children.add(block)
        if self.observers:
            record = BlockRecord(
                group=block.group,
                block_hash=owner.hashes[position],
                parent_hash=owner.hashes[position - 1] if position else None,
                token_ids=tuple(self._tokens(owner, position)),
                cache_salt=owner.cache_salt,
            )
            for observer in self.observers:
                observer.stored(Tier.DEVICE, record)

    def _tokens(self, held: RequestBlocks, position: int) -> Sequence[int]:
        size = self._hasher.block_size
        return held.token_ids[position * size : (position + 1) * size]


def _has_read(held: RequestBlocks, is_holder: bool, garbage: set[Block], names: set[BlockHash]) -> bool:
    """Whether a request may have read one of these blocks. Of one that holds nothing any more only the names of its
    blocks tell, and these say too much rather than too little."""
    if is_holder:
        return any(block in garbage for table in held.tables for block in table)
    return not names.isdisjoint(held.hashes)
