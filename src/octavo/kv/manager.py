"""The KV manager: which block a request gets, what it shares, and when a block can be found again."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from octavo.kv.blocks import Block, BlockPool
from octavo.kv.children import Children
from octavo.kv.conservation import check_conservation
from octavo.kv.groups import Found, GroupPolicy, common_hit, joint_hit, policy_for
from octavo.kv.hashing import BlockHash, BlockHasher, tenant_salt
from octavo.kv.publication import Publications
from octavo.kv.record import BlockRecord, CacheObserver
from octavo.kv.request_blocks import BlockIds, PartialHit, RequestBlocks
from octavo.kv.reservation import MissingBlock, Reservation
from octavo.kv.spec import CacheSpec, KVLayout


class PrefixHit(NamedTuple):
    """What of a request's tokens is in the cache now. Valid until the next call that allocates."""

    num_blocks: int
    """Whole blocks, per group."""
    num_tokens: int
    """In whole blocks and in the one that is copied from."""
    free_blocks: tuple[int, ...]
    """[group] hit blocks that nobody holds: adopting the hit takes them out of the free blocks."""
    source: BlockHash | None = None
    """Hash of the block copied from. It is held for one step only; `match` makes sure of the room."""

    @property
    def num_free_blocks(self) -> int:
        """Free blocks that adopting the hit takes, over all groups."""
        return sum(self.free_blocks)


class KVManager:
    """Owner of all block tables and of the prefix cache. Pure bookkeeping: no clock, no bytes, no I/O.

    The life of a request's blocks: `open` -> `match` -> `adopt` -> (`allocate` -> step -> `settle`)* -> `free`.
    `allocate` makes the blocks that its step fills findable at once. That can be taken back: by `withdraw` while the
    step is being planned (the request has no part in it after all), by `revoke` from then on (its part failed).

        planned             in flight, oldest first            done
        allocate, withdraw  --- `issue` --->  revoke  --- `commit` --->  settle

    A step may be planned and issued while others are in flight; they run and are committed in their order.
    """

    def __init__(
        self,
        layout: KVLayout,
        *,
        enable_prefix_caching: bool = True,
        sub_block_match: bool = True,
        max_step_tokens: int | None = None,
        fingerprint: str = "",
        isolate_tenants: bool = False,
    ) -> None:
        """
        Args:
            layout: blocks and cache groups.
            enable_prefix_caching: False: nothing is ever published or found.
            sub_block_match: hits may end inside a block, whose first part is then copied.
            max_step_tokens: most tokens of one request in a step; None: any number. Bounds what a request holds in
                groups that let go of blocks out of reach.
            fingerprint: see `hashing.chain_root`.
            isolate_tenants: requests find blocks of their own tenant only.
        """
        self.layout = layout
        self.max_step_tokens = max_step_tokens
        self.num_evicted = 0
        """Published blocks reused for other tokens, since start."""
        self._caching = enable_prefix_caching
        self._isolate_tenants = isolate_tenants
        self._block_size = layout.block_size
        self._pool = BlockPool(layout.num_blocks)
        self._groups = [policy_for(group, layout.block_size) for group in layout.groups]
        self._lead = next((i for i, policy in enumerate(self._groups) if policy.is_closed), 0)
        """The group whose hit is tried first, and whose blocks sub-block matches are looked for among."""
        self._letting_go = _groups_that_let_go(layout, self._groups)
        can_copy = sub_block_match and all(group.spec.can_be_cut for group in layout.groups)
        self._children = Children() if can_copy and layout.block_size > 1 else None
        self._hasher = BlockHasher(fingerprint, layout.block_size)
        self._holders: dict[RequestBlocks, None] = {}
        self._publications = Publications(self._pool, self._groups, self._lead, self._children, self._hasher)
        self._reservations: dict[Reservation, None] = {}
        self._on_reuse: Callable[[int], None] | None = None
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
    def chain_root(self) -> BlockHash:
        """The parent of every first block, see `hashing.chain_root`."""
        return self._hasher.root

    @property
    def keeps_prefixes(self) -> bool:
        """Whether anything is published."""
        return self._caching

    @property
    def num_cached_blocks(self) -> int:
        """Blocks that can be found by their content, held or not."""
        return sum(len(group.index) for group in self._groups)

    def open(
        self, token_ids: list[int], *, tenant: str = "", cache_salt: str | None = None, reads_cache: bool = True
    ) -> RequestBlocks:
        """Starts the bookkeeping of a request; takes no block.

        Args:
            token_ids: its known tokens, at least one. The list is kept and read again as it grows.
            tenant: who asks; counts where tenants share nothing.
            cache_salt: requests find each other's blocks only under equal salts.
            reads_cache: False: takes no hits (but its blocks can be found by others).
        """
        reads_cache = reads_cache and self._caching
        salt = tenant_salt(tenant, cache_salt) if self._isolate_tenants else cache_salt
        return RequestBlocks(token_ids, len(self._groups), cache_salt=salt, reads_cache=reads_cache)

    def match(self, held: RequestBlocks) -> PrefixHit:
        """The longest cached prefix that all groups accept, at most n - 1 tokens: the last token must run to give
        logits. Whole blocks, and where the next one is cached with other tokens at its end, the part that is the same.
        Changes nothing."""
        if not held.reads_cache:
            return PrefixHit(0, 0, (0,) * len(self._groups))
        count = self.num_hit_blocks(held)
        num_tokens = count * self._block_size
        hit = PrefixHit(count, num_tokens, self._num_free(held, count, num_tokens))
        return hit if self._children is None else self._with_partial(held, hit, self._children)

    # ---- transfers

    def num_joint_hit_blocks(self, held: RequestBlocks, elsewhere: Sequence[Found], most: int | None = None) -> int:
        """Blocks per group, at most `most`, that `match` would find if those found elsewhere, [group], were on the
        device."""
        limit = self._hit_limit(held)
        if most is not None:
            limit = min(limit, most)
        self._name_blocks(held, limit)
        return joint_hit(self._groups, held.hashes, limit, elsewhere)

    def hit_names(self, held: RequestBlocks, num_blocks: int) -> Iterator[tuple[int, BlockHash]]:
        """(group, name) of the blocks that a hit of `num_blocks` blocks takes."""
        for group, policy in enumerate(self._groups):
            for name in held.hashes[policy.first_block(num_blocks * self._block_size) : num_blocks]:
                yield group, name

    def missing_blocks(self, held: RequestBlocks, num_blocks: int) -> list[MissingBlock]:
        """What is not on the device of the blocks that a hit of `num_blocks` blocks takes; parents first."""
        firsts = [policy.first_block(num_blocks * self._block_size) for policy in self._groups]
        return [
            MissingBlock(group, position, held.hashes[position])
            for position in range(min(firsts), num_blocks)
            for group, policy in enumerate(self._groups)
            if position >= firsts[group] and held.hashes[position] not in policy.index
        ]

    def reserve(self, held: RequestBlocks, num_blocks: int, missing: Sequence[MissingBlock]) -> Reservation | None:
        """Takes a free block for each one that is missing for a hit of `num_blocks` blocks, and holds those that are on
        the device. None, and nothing done, if too few are free. To be given back by `end_reservation`."""
        parents = self._hit_blocks(held, num_blocks)
        num_free = sum(block.ref == 0 for block in parents)
        if len(missing) + num_free > self._pool.num_free:
            return None
        for block in parents:
            self._pool.touch(block)
        reservation = Reservation(parents, [self._take(block.group) for block in missing])
        self._reservations[reservation] = None
        return reservation

    def end_reservation(self, reservation: Reservation, records: Sequence[BlockRecord | None]) -> None:
        """Lets go of all blocks of a load. Those whose bytes have come become cached blocks that nobody holds.

        Args:
            records: what has come for each of `targets`; None: nothing that can be used.
        """
        del self._reservations[reservation]
        for block, record in zip(reservation.targets, records, strict=True):
            if record is not None:
                self._publications.publish_loaded(block, record)
        for block in chain(reversed(reservation.targets), reversed(reservation.parents)):
            self._pool.release(block)

    def computed_block(self, group: int, block_hash: BlockHash) -> int | None:
        """Id of a cached block whose bits are there; None if there is none. Its bytes stay what they are until it is
        handed out again, of which `watch_reuse` tells."""
        block = self._groups[group].index.get(block_hash)
        return None if block is None or block.in_flight else block.id

    def watch_reuse(self, on_reuse: Callable[[int], None]) -> None:
        """Has `on_reuse` called with the id of each block that is handed out, before anybody may write there."""
        self._on_reuse = on_reuse

    def is_closed(self, group: int) -> bool:
        """See `GroupPolicy.is_closed`."""
        return self._groups[group].is_closed

    # ---- requests

    def blocks_per_request(self, num_tokens: int) -> int:
        """Most blocks that a request of this many tokens holds at one time, over all groups."""
        return self.layout.blocks_per_request(num_tokens, self.max_step_tokens)

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
        """Whether `num_hit_blocks` would say `count` > 0; O(1) where all groups keep all blocks, for closure then
        decides it from the blocks on both sides of the border."""
        if self._letting_go:
            return 0 < count == self.num_hit_blocks(held)
        names, limit = held.hashes, self._hit_limit(held)
        if not count <= min(len(names), limit) or any(names[count - 1] not in group.index for group in self._groups):
            return False
        follower = self.hit_name(held, count)
        return follower is None or any(follower not in group.index for group in self._groups)

    def num_private_blocks(self, held: RequestBlocks) -> int:
        """Blocks, over all groups, that only this request holds: what is free once it ends.

        In a group that keeps all blocks it takes O(log blocks), for who holds a block holds all before it, so that in
        a table references never grow:

            references   3 3 2 2 | 1 1 1
        """
        sources = () if held.partial_hit is None else held.partial_hit.sources
        count = sum(map(_is_private, sources))
        for policy, table in zip(self._groups, held.tables, strict=True):
            if policy.is_closed:
                count += len(table) - bisect_left(table, True, key=_is_private)
            else:
                count += sum(map(_is_private, table))
        return count

    def listen(self, on_publish: Callable[[BlockHash], None]) -> None:
        """Has `on_publish` called with each name that becomes findable in some group, until another one listens."""
        for group in self._groups:
            group.index.on_publish = on_publish

    def observe(self, observer: CacheObserver) -> None:
        """Has an observer told of all that is stored on the device and removed from it, from now on; to be called
        before anything is cached. Unlike `listen` it hears of blocks when their bits are there."""
        self._publications.observers.append(observer)

    def num_blocks_needed(self, hit: PrefixHit, num_tokens: int) -> int:
        """Free blocks that a request with this hit takes, at most at one time, to hold `num_tokens` tokens."""
        missing = max(0, -(-num_tokens // self._block_size) - hit.num_blocks)
        needed = 0
        for group, free in zip(self.layout.groups, hit.free_blocks, strict=True):
            most = group.most_blocks(num_tokens, self.max_step_tokens, self._block_size)
            needed += min(missing + free, most)
        return needed

    def adopt(self, held: RequestBlocks, hit: PrefixHit) -> None:
        """Puts the blocks of a hit at the start of the (empty) tables of a request."""
        if held in self._holders:
            raise RuntimeError("a request that already holds blocks cannot adopt a prefix hit")
        for group, policy in enumerate(self._groups):
            let_go = policy.first_block(hit.num_tokens)
            blocks = [policy.index[name] for name in held.hashes[let_go : hit.num_blocks]]
            for block in blocks:
                self._pool.touch(block)
            held.tables[group] = [self._pool.null] * let_go + blocks
            held.num_published[group] = hit.num_blocks
            held.num_let_go[group] = let_go
        held.num_settled = held.num_full = hit.num_blocks
        if hit.source is not None:
            self._adopt_partial(held, hit, hit.source)
        if self._letting_go:
            held.junction = self._groups[self._lead].accept(held.hashes, len(held.hashes))
        self._holders[held] = None

    def hold_computed(self, held: RequestBlocks) -> RequestBlocks:
        """Another handle on the longest part of a request's known tokens that is cached and computed, and from whose
        border all groups could go on. It holds these blocks, and no others, until it is freed."""
        if not self._caching:
            return self.open([])
        border = len(held.token_ids) // self._block_size
        self._name_blocks(held, border)
        unready: int | None = border
        while unready is not None:
            border = common_hit(self._groups, held.hashes, unready)
            unready = self._first_in_flight(held.hashes, border)
        known = list(held.token_ids[: border * self._block_size])
        holder = RequestBlocks(known, len(self._groups), cache_salt=held.cache_salt, reads_cache=True)
        holder.hashes = held.hashes[:border]
        self.adopt(holder, PrefixHit(border, border * self._block_size, ()))
        return holder

    def num_blocks_to_go_on(self, num_tokens: int) -> int:
        """Blocks, over all groups, that are needed to go on behind so many tokens, a multiple of the block size."""
        return sum(num_tokens // self._block_size - policy.first_block(num_tokens) for policy in self._groups)

    def _first_in_flight(self, hashes: Sequence[BlockHash], border: int) -> int | None:
        """Position of the first block that is needed to go on from a border, and not computed."""
        positions = (
            position
            for policy in self._groups
            for position in range(policy.first_block(border * self._block_size), border)
            if policy.index[hashes[position]].in_flight
        )
        return min(positions, default=None)

    def allocate(self, held: RequestBlocks, num_tokens: int) -> BlockIds | None:
        """Makes the tables cover the first `num_tokens` tokens and publishes the blocks that become full of known ones.
        Tokens that steps in flight will yield may be among them; what these fill is published by `settle`.

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
        num_full = min(num_tokens, len(held.token_ids)) // self._block_size
        if num_full > held.num_settled and self._caching:
            self._publish(held, num_full)
        return new_ids

    def trim(self, held: RequestBlocks, num_tokens: int) -> bool:
        """Frees the blocks behind those of the first `num_tokens` tokens, which are not to be fewer than are known to
        be computed or under way: these were taken for drafts. Whether there were any."""
        keep = -(-num_tokens // self._block_size)
        if len(held.tables[0]) <= keep:
            return False
        for table in held.tables:
            while len(table) > keep:
                self._pool.release(table.pop())
        return True

    def settle(self, held: RequestBlocks, num_computed_tokens: int) -> None:
        """After a step and its `commit`: puts the request's tables in order for what is computed now, if that filled a
        block. `num_computed_tokens` leaves out what steps in flight compute.

        Full blocks that could not be published because their hash already was are dropped for the published twin;
        blocks behind them are published. Equal hash means equal bits, so the switch is invisible to the request. Then
        blocks that have got out of reach are let go. Both are put down in `held.swaps`, which the executing side must
        hear before it runs the request again.
        """
        if held.partial_hit is not None:
            self._release_sources(held)
        num_full = num_computed_tokens // self._block_size
        if num_full == held.num_full:
            return
        held.num_full = num_full
        if num_full > held.num_settled and self._caching:
            self._settle_blocks(held, num_full)
        for policy, groups in self._letting_go:
            first = policy.first_block(num_full * self._block_size)
            if first > held.num_let_go[groups[0]]:
                for group in groups:
                    self._let_go(held, group, first)

    def issue(self) -> None:
        """The step under planning is on its way: it will run, whatever becomes of its requests."""
        self._publications.issue()

    def commit(self) -> None:
        """The oldest step is done, what it published stays. With none in flight that is the one under planning."""
        self._publications.commit()

    def free(self, held: RequestBlocks) -> None:
        """Releases all blocks of a request, deepest first; what is published stays findable. Idempotent."""
        self._release_sources(held)
        for position in range(len(held.tables[0]) - 1, -1, -1):
            for table, let_go in zip(held.tables, held.num_let_go, strict=True):
                if position >= let_go:
                    self._pool.release(table[position])
        held.tables = [[] for _ in self._groups]
        held.num_published = [0] * len(self._groups)
        held.num_let_go = [0] * len(self._groups)
        held.num_settled = held.num_full = 0
        held.swaps = []
        self._holders.pop(held, None)

    def withdraw(self, held: RequestBlocks) -> None:
        """Frees a request that was allocated for the step under planning, which is now planned without it.

        What it published for that step will not be computed, so it is unpublished. Nobody can have found it yet:
        hits are looked up only after the last withdrawal of a step.
        """
        self._publications.take_back(self._publications.planned_by(held))
        self.free(held)

    def is_withdrawable(self, held: RequestBlocks) -> bool:
        """Whether `withdraw` would take nothing from others: nobody else holds what it published for this step."""
        return all(map(_is_private, self._publications.planned_by(held)))

    def revoke(self, failed: Collection[RequestBlocks]) -> list[RequestBlocks]:
        """Unpublishes what the oldest step in flight filled with garbage, and what later ones build on that: the blocks
        published by requests whose part failed (they may be freed by now), and by requests that read such a block.

        Returns:
            Those that read what others had spoiled, as far as they hold blocks, failed ones among them: what failed of
            these may be due to that. Their parts of the steps in flight are garbage, too; they must be freed before
            anything else is allocated. At least one of `failed` has nobody else to blame and is not returned.
        """
        garbage, spoiled = self._publications.spoiled_by(failed, self._holders)
        to_blame = {held for held in failed if not self._publications.is_misled(held, spoiled)} or set(failed)
        self._publications.take_back(garbage)
        return [held for held in self._holders if held in spoiled - to_blame]

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached blocks. Refused, with False, while any block is held."""
        if self._pool.num_free < self._pool.num_usable:
            return False
        self._publications.clear()
        return True

    def check(self) -> None:
        """Verifies conservation, see `check_conservation`. O(blocks); for tests and idle moments."""
        published = [entry.block for entry in self._publications.uncommitted()]
        in_transit = [
            block for reservation in self._reservations for block in (*reservation.parents, *reservation.targets)
        ]
        check_conservation(self._pool, self._groups, self._children, list(self._holders), published, in_transit)

    # ---- hits

    def _hit_limit(self, held: RequestBlocks) -> int:
        """Most whole blocks of a hit."""
        return (len(held.token_ids) - 1) // self._block_size if held.reads_cache else 0

    def _num_free(self, held: RequestBlocks, num_blocks: int, num_tokens: int) -> tuple[int, ...]:
        """[group] -> blocks that nobody holds of those that a hit takes to go on behind `num_tokens` tokens."""
        return tuple(
            [
                sum(policy.index[name].ref == 0 for name in held.hashes[policy.first_block(num_tokens) : num_blocks])
                for policy in self._groups
            ]
        )

    def _hit_blocks(self, held: RequestBlocks, num_blocks: int) -> list[Block]:
        """Those of the blocks that a hit of `num_blocks` blocks takes which are there; first positions first."""
        found = [
            (position, policy.index.get(held.hashes[position]))
            for policy in self._groups
            for position in range(policy.first_block(num_blocks * self._block_size), num_blocks)
        ]
        return [block for _, block in sorted(found, key=itemgetter(0)) if block is not None]

    def _with_partial(self, held: RequestBlocks, hit: PrefixHit, children: Children) -> PrefixHit:
        """The hit, longer by the part of the next block that is cached in all groups, computed, and can be copied now
        without taking the room that the request itself needs."""
        start = hit.num_tokens
        wanted = held.token_ids[start : min(start + self._block_size, len(held.token_ids) - 1)]
        found = children.closest(self._publications.parent_key(held, hit.num_blocks), self._hasher.pack(wanted))
        if found is None:
            return hit
        block, num_shared = found
        assert block.hash is not None
        sources = [policy.index.get(block.hash) for policy in self._groups]
        if any(source is None or source.in_flight for source in sources):
            return hit
        longer = PrefixHit(
            hit.num_blocks,
            start + num_shared,
            self._num_free(held, hit.num_blocks, start + num_shared),
            source=block.hash,
        )
        for_sources = sum(source is not None and source.ref == 0 for source in sources)
        needed = self.num_blocks_needed(longer, len(held.token_ids)) + for_sources
        return longer if needed <= self.num_free_blocks else hit

    def _adopt_partial(self, held: RequestBlocks, hit: PrefixHit, source: BlockHash) -> None:
        sources = [policy.index[source] for policy in self._groups]
        for block in sources:
            self._pool.touch(block)
        held.partial_hit = PartialHit(sources, hit.num_blocks, hit.num_tokens - hit.num_blocks * self._block_size)

    def _release_sources(self, held: RequestBlocks) -> None:
        """Lets go of the blocks copied from; before the request lets go of the blocks before them."""
        if held.partial_hit is not None:
            for block in held.partial_hit.sources:
                self._pool.release(block)
            held.partial_hit = None

    def _name_blocks(self, held: RequestBlocks, count: int) -> None:
        if count > len(held.hashes):
            self._hasher.extend(held.hashes, held.token_ids, count, held.salt)

    # ---- tables

    def _grow(self, table: list[Block], group: int, count: int) -> tuple[int, ...]:
        """Appends `count` fresh blocks; the caller has made sure that they are free."""
        new = [self._take(group) for _ in range(count)]
        table += new
        return tuple(block.id for block in new)

    def _take(self, group: int) -> Block:
        block = self._pool.take()
        if block.in_flight:
            self._publications.take_back([block])  # Whoever published it has left before the step was done.
        elif block.hash is not None:
            self._publications.forget(block)
            self.num_evicted += 1
        block.group = group
        if self._on_reuse is not None:
            self._on_reuse(block.id)
        return block

    def _settle_blocks(self, held: RequestBlocks, num_full: int) -> None:
        self._name_blocks(held, num_full)
        for group in range(len(self._groups)):
            position = held.num_published[group]
            while position < num_full and self._settle_entry(held, group, position):
                position += 1
            held.num_published[group] = position
        held.num_settled = min(held.num_published)

    def _settle_entry(self, held: RequestBlocks, group: int, position: int) -> bool:
        """False if the entry has to wait: in a closed group nothing computed comes to stand behind a block in flight,
        which must be without children if its part of the step fails."""
        policy, table = self._groups[group], held.tables[group]
        twin = policy.index.get(held.hashes[position])
        before = table[position - 1] if twin is None and position else twin
        if policy.is_closed and before is not None and before.in_flight:
            return False
        if twin is None:
            self._publications.publish(held, group, position)
            return True
        own = table[position]
        self._pool.touch(twin)
        table[position] = twin
        held.swaps.append((group, position, twin.id))
        self._pool.release(own)
        return True

    def _let_go(self, held: RequestBlocks, group: int, first: int) -> None:
        """Empties the table entries before `first`. Blocks within reach of the junction are kept like others that were
        used last: from there on others may part from this request, too. Those elsewhere are the first to go."""
        null, table = self._pool.null, held.tables[group]
        kept = range(self._groups[group].first_block(held.junction * self._block_size), held.junction)
        for position in range(held.num_let_go[group], first):
            drop = self._pool.release if position in kept else self._pool.let_go
            drop(table[position])
            table[position] = null
            held.swaps.append((group, position, null.id))
        held.num_let_go[group] = first

    # ---- publication

    def _publish(self, held: RequestBlocks, num_full: int) -> None:
        """Publishes full blocks in order, per group up to the first whose hash is taken: that one waits for
        `settle`, and so do those behind it, whose published parent is not (yet) in the table."""
        self._name_blocks(held, num_full)
        for group, policy in enumerate(self._groups):
            if not policy.publishes_in_flight:
                continue
            position = held.num_published[group]
            while position < num_full and held.hashes[position] not in policy.index:
                self._publications.publish_ahead(held, group, position)
                position += 1
            held.num_published[group] = position
        held.num_settled = min(held.num_published)


def _groups_that_let_go(layout: KVLayout, policies: list[GroupPolicy]) -> list[tuple[GroupPolicy, list[int]]]:
    """(policy, groups) for each kind of layers with a limited reach: groups of equal spec let go of equal entries."""
    by_spec: dict[CacheSpec, list[int]] = {}
    for index, group in enumerate(layout.groups):
        if group.spec.reach is not None:
            by_spec.setdefault(group.spec, []).append(index)
    return [(policies[groups[0]], groups) for groups in by_spec.values()]


def _is_private(block: Block) -> bool:
    return block.ref == 1
