"""The tiers behind the device pool: what is copied to them, what is loaded back, and when that is worth the wait.

Every computed block is copied to each tier, off the step loop, as long as it is there. A copy borrows the device block:
it holds no reference, and if the pool hands the block out, the copy is cancelled first. A load holds what it fills and
what that stands behind; if running requests are short of blocks, it gives way to them. So no transfer can keep a
request from running, and leases bound every wait.

What was decided is taken away as orders. They must reach the stores before the step that was planned with them runs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice

from octavo.kv.hashing import BlockHash
from octavo.kv.load import Load, Transfer
from octavo.kv.manager import KVManager
from octavo.kv.record import BlockRecord, CacheObserver, Tier
from octavo.kv.request_blocks import RequestBlocks
from octavo.kv.reservation import MissingBlock
from octavo.kv.speed import PrefillSpeed
from octavo.kv.tier_book import MAX_STORING, TierBook, TierSettings
from octavo.kv.tier_laws import check_books
from octavo.kv.transfer import (
    BlockMove,
    BlockName,
    Direction,
    TransferEvent,
    TransferOrders,
    TransferPlan,
    TransferState,
)
from octavo.request.control import TierFigures

LOADING_SHARE = 0.5
"""Of the pool, which loads may fill at one time. One alone may fill more, as whoever waits for it has room for all."""
_BLOCKS_PER_STORE = 16
"""Most blocks of one plan: all of them are given up if one is handed out meanwhile."""


class Tiers:
    """Owner of the directories of all tiers and of all transfers. Pure bookkeeping: the clock is an argument.

    Observes the device: its `stored`, `removed` and `cleared` are what a `CacheObserver` hears.
    """

    def __init__(self, manager: KVManager, settings: Sequence[TierSettings], *, lease_s: float) -> None:
        """
        Args:
            manager: has this one observe it from now on.
            settings: the tiers, the fastest first.
            lease_s: seconds after which a transfer that has not ended is cancelled.
        """
        self.prefill_speed = PrefillSpeed()
        """To be told of the steps that run: what loads are weighed against."""
        self._manager = manager
        self._lease_s = lease_s
        groups = range(len(manager.layout.groups))
        is_closed = [manager.is_closed(group) for group in groups]
        self._books = {each.tier: TierBook(each, is_closed) for each in settings}
        self._observers: list[CacheObserver] = []
        self._transfers: dict[int, Transfer] = {}
        self._num_transfers = 0
        self._loading: dict[BlockName, Load] = {}
        """What is on its way to the device."""
        self._readers: dict[int, list[Transfer]] = {}
        """Device block -> stores that read it."""
        self._awake: list[TierBook] = []
        self._found = [partial(self._lies_awake, group) for group in groups]
        self._cancels: list[tuple[Tier, int]] = []
        self._removals: list[tuple[Tier, BlockName]] = []
        self._plans: list[TransferPlan] = []
        manager.observe(self)
        manager.watch_reuse(self._reused)

    def observe(self, observer: CacheObserver) -> None:
        """Has an observer told of all that comes to a tier and goes, from now on, and first of what lies there."""
        self._observers.append(observer)
        for tier, book in self._books.items():
            for record in book.directory.records():
                observer.stored(tier, record)

    # ---- the device as an observer hears it

    def stored(self, tier: Tier, record: BlockRecord) -> None:
        """See `CacheObserver.stored`."""
        for book in self._books.values():
            book.note(record)

    def removed(self, tier: Tier, group: int, block_hash: BlockHash) -> None:
        """See `CacheObserver.removed`. What was not copied in time is lost to the tiers."""
        for book in self._books.values():
            book.backlog.pop((group, block_hash), None)

    def cleared(self, tier: Tier) -> None:
        """See `CacheObserver.cleared`."""
        for book in self._books.values():
            book.backlog.clear()

    def _reused(self, block_id: int) -> None:
        """A device block is handed out: nobody may read it any more."""
        for transfer in self._readers.get(block_id, ())[:]:
            self._cancel(transfer)

    # ---- loads

    def load_for(
        self, held: RequestBlocks, num_hit_blocks: int, now_s: float, *, after_step: int, parents_step: int
    ) -> Load | None:
        """What a request should wait for before it runs: a load that begins now or that is under way; None: nothing.

        It begins one if with the blocks of all tiers its hit is longer, and these are foreseen to come sooner than
        they are computed. What is not known yet is tried.

        Args:
            num_hit_blocks: its hit on the device.
            after_step: the last step in flight, see `TransferPlan.after_step`.
            parents_step: the last step in which blocks are computed that can be found now.
        """
        self._awake = [book for book in self._books.values() if book.patience[Direction.LOAD].lasts(now_s)]
        missing = self._within_room(held, num_hit_blocks)
        if not missing:
            return None
        for block in missing:
            load = self._loading.get((block.group, block.block_hash))
            if load is not None:
                return load
        border = max(block.position for block in missing) + 1
        books = [self._book_of(block) for block in missing]
        if not self._is_worth_it(missing, books, (border - num_hit_blocks) * self._manager.layout.block_size, now_s):
            return None
        reservation = self._manager.reserve(held, border, missing)
        if reservation is None:
            return None
        records = [book.directory.record(_name(block)) for book, block in zip(books, missing, strict=True)]
        load = Load(missing, records, [book.tier for book in books], reservation)
        self._begin_load(load, parents_step if reservation.reads_in_flight else after_step, now_s)
        return load

    def cancel_load(self, load: Load) -> None:
        """Ends a load at once, with what has come from transfers that have ended."""
        for transfer in list(load.open.values()):
            self._cancel(transfer)
        load.open.clear()
        self._end_load(load)

    def touch(self, held: RequestBlocks, num_blocks: int) -> None:
        """A request goes on from its first blocks: in the tiers they count as used, too."""
        for book in self._books.values():
            if len(book.directory):
                book.directory.touch(self._manager.hit_names(held, num_blocks))

    def _lies_awake(self, group: int, block_hash: BlockHash) -> bool:
        return any((group, block_hash) in book.directory for book in self._awake)

    def _within_room(self, held: RequestBlocks, num_hit_blocks: int) -> list[MissingBlock]:
        """What is missing on the device for the longest hit over all tiers that loads may fill blocks for now."""
        room = self._manager.num_blocks
        if self._loading:
            room = int(LOADING_SHARE * room) - len(self._loading)
        limit: int | None = None
        while True:
            border = self._manager.num_joint_hit_blocks(held, self._found, limit)
            if border <= num_hit_blocks or room <= 0:
                return []
            missing = self._manager.missing_blocks(held, border)
            if len(missing) <= room:
                return missing
            limit = min(border - 1, num_hit_blocks + (border - num_hit_blocks) * room // len(missing))

    def _book_of(self, block: MissingBlock) -> TierBook:
        """The fastest tier where a block lies."""
        return next(book for book in self._awake if _name(block) in book.directory)

    def _is_worth_it(
        self, missing: Sequence[MissingBlock], books: Sequence[TierBook], num_tokens: int, now_s: float
    ) -> bool:
        """Whether the blocks are foreseen to come sooner than their tokens are computed. Tiers work side by side."""
        compute_s = self.prefill_speed.seconds(num_tokens)
        if compute_s is None:
            return True
        num_bytes: Counter[Tier] = Counter()
        for block, book in zip(missing, books, strict=True):
            num_bytes[book.tier] += book.directory.bytes_of(_name(block))
        for tier, count in num_bytes.items():
            book = self._books[tier]
            load_s = book.speed.seconds(book.loading_bytes + count, now_s)
            if load_s is not None and load_s > compute_s:
                return False
        return True

    def _begin_load(self, load: Load, after_step: int, now_s: float) -> None:
        places: dict[Tier, list[int]] = defaultdict(list)
        for place, tier in enumerate(load.tiers):
            places[tier].append(place)
        for tier, mine in places.items():
            moves = [BlockMove(block_id=load.reservation.targets[i].id, record=load.records[i]) for i in mine]
            transfer = self._plan(Direction.LOAD, self._books[tier], moves, after_step, now_s)
            transfer.load, transfer.places = load, mine
            transfer.reading = self._books[tier].directory.begin_reading([_name(load.missing[i]) for i in mine])
            load.open[transfer.plan.transfer_id] = transfer
        self._loading.update((_name(block), load) for block in load.missing)

    def _end_load(self, load: Load) -> None:
        for block in load.missing:
            del self._loading[_name(block)]
        records = [record if come else None for record, come in zip(load.records, load.has_come, strict=True)]
        self._manager.end_reservation(load.reservation, records)

    # ---- stores

    def plan_stores(self, now_s: float, most: int = MAX_STORING) -> None:
        """Plans copies of what was computed, until so many blocks are on their way to each tier."""
        for book in self._books.values():
            patience = book.patience[Direction.STORE]
            while book.backlog and book.num_storing < most and patience.lasts(now_s):
                moves = self._next_moves(book, most)
                if moves:
                    transfer = self._plan(Direction.STORE, book, moves, -1, now_s)
                    book.num_storing += len(moves)
                    for move in moves:
                        self._readers.setdefault(move.block_id, []).append(transfer)
            self._let_go(book)

    def _next_moves(self, book: TierBook, most: int) -> list[BlockMove]:
        moves = []
        for name in list(islice(book.backlog, min(_BLOCKS_PER_STORE, most - book.num_storing))):
            record = book.backlog.pop(name)
            block_id = self._manager.computed_block(*name)
            if block_id is not None and not book.directory.knows(name) and book.directory.expect(record):
                moves.append(BlockMove(block_id=block_id, record=record))
        return moves

    def _let_go(self, book: TierBook) -> None:
        """Has the store forget what had to go for want of room."""
        for group, block_hash in book.directory.take_gone():
            book.num_evicted += 1
            self._removals.append((book.tier, (group, block_hash)))
            for observer in self._observers:
                observer.removed(book.tier, group, block_hash)

    # ---- transfers

    def take_in(self, events: Iterable[TransferEvent], now_s: float) -> list[Load]:
        """Takes in what stores report; events of transfers that have ended are ignored.

        Returns:
            Loads that have ended.
        """
        ended = []
        for event in events:
            transfer = self._transfers.get(event.transfer_id)
            if transfer is None:
                continue
            if event.state is TransferState.RELEASED:
                self._release(transfer)
                continue
            load = transfer.load
            self._take_end(transfer, event, now_s)
            if load is not None and not load.open:
                self._end_load(load)
                ended.append(load)
        return ended

    def expire(self, now_s: float) -> list[Load]:
        """Cancels what has not ended in time.

        Returns:
            Loads that have ended by that.
        """
        ended = []
        for transfer in list(self._transfers.values()):
            if transfer.is_cancelled or transfer.deadline_s > now_s:
                continue
            self._books[transfer.plan.tier].patience[transfer.plan.direction].failed(now_s)
            load = transfer.load
            if load is None:
                self._cancel(transfer)
            else:
                self.cancel_load(load)
                ended.append(load)
        return ended

    def deadline_s(self) -> float | None:
        """When `expire` has something to do next, if no transfer ends before."""
        return min((each.deadline_s for each in self._transfers.values() if not each.is_cancelled), default=None)

    def take_orders(self) -> TransferOrders:
        """What has been decided since the last call."""
        orders = TransferOrders(cancels=tuple(self._cancels), removals=tuple(self._removals), plans=tuple(self._plans))
        self._cancels, self._removals, self._plans = [], [], []
        return orders

    def figures(self) -> list[TierFigures]:
        """How full the tiers are."""
        return [
            TierFigures(
                tier=tier,
                num_blocks=len(book.directory),
                used_bytes=book.directory.used_bytes,
                capacity_bytes=book.directory.capacity_bytes,
            )
            for tier, book in self._books.items()
        ]

    def counters(self) -> dict[str, float]:
        """Totals since start, `<tier>_<name>`."""
        return {name: total for book in self._books.values() for name, total in book.counters().items()}

    def check(self) -> None:
        """Verifies that the books agree; for tests.

        Raises:
            AssertionError: naming the law.
        """
        check_books(self._books, self._transfers.values(), self._loading, self._readers)

    def clear(self) -> None:
        """Forgets all blocks of all tiers, those on their way there included. No load may be under way."""
        if self._loading:
            raise RuntimeError("tiers cannot be cleared while blocks are being loaded")
        for transfer in self._transfers.values():
            transfer.is_void = True
            if not transfer.is_cancelled:
                self._cancel(transfer)
        for tier, book in self._books.items():
            self._let_go(book)
            self._removals += [(tier, name) for name in book.directory.clear()]
            for observer in self._observers:
                observer.cleared(tier)

    def _plan(
        self, direction: Direction, book: TierBook, moves: Sequence[BlockMove], after_step: int, now_s: float
    ) -> Transfer:
        plan = TransferPlan(
            transfer_id=self._num_transfers,
            direction=direction,
            tier=book.tier,
            moves=tuple(moves),
            after_step=after_step,
            lease_s=self._lease_s,
        )
        num_bytes = sum(book.directory.bytes_of((m.record.group, m.record.block_hash)) for m in moves)
        transfer = Transfer(plan, num_bytes, book.loading_bytes, now_s)
        self._num_transfers += 1
        self._transfers[plan.transfer_id] = transfer
        self._plans.append(plan)
        if direction is Direction.LOAD:
            book.loading_bytes += num_bytes
        return transfer

    def _cancel(self, transfer: Transfer) -> None:
        """Has a transfer let go of its device blocks at once."""
        self._release(transfer)
        transfer.is_cancelled = True
        transfer.load = None
        self._cancels.append((transfer.plan.tier, transfer.plan.transfer_id))

    def _release(self, transfer: Transfer) -> None:
        """A store reads its device blocks no more."""
        for move in transfer.plan.moves:
            readers = self._readers.get(move.block_id, [])
            if transfer in readers:
                readers.remove(transfer)
                if not readers:
                    del self._readers[move.block_id]

    def _take_end(self, transfer: Transfer, event: TransferEvent, now_s: float) -> None:
        plan, book = transfer.plan, self._books[transfer.plan.tier]
        del self._transfers[plan.transfer_id]
        self._release(transfer)
        is_done = event.state is TransferState.DONE
        num_moved = len(plan.moves) if is_done else event.num_moved
        if plan.direction is Direction.STORE:
            self._take_store(transfer, book, num_moved)
        else:
            book.loading_bytes -= transfer.num_bytes
            self._take_load(transfer, book, num_moved, event.lost)
            passed_s = now_s - transfer.made_s
            book.speed.measured(event.num_bytes, event.seconds, transfer.ahead_bytes, passed_s, now_s)
        if is_done:
            book.patience[plan.direction].worked()
        elif not transfer.is_cancelled and not event.lost:
            book.patience[plan.direction].failed(now_s)

    def _take_store(self, transfer: Transfer, book: TierBook, num_moved: int) -> None:
        book.num_storing -= len(transfer.plan.moves)
        for place, move in enumerate(transfer.plan.moves):
            name = (move.record.group, move.record.block_hash)
            if place < num_moved and not transfer.is_void:
                book.directory.arrived(name)
                book.num_stored += 1
                for observer in self._observers:
                    observer.stored(book.tier, move.record)
                continue
            book.directory.remove(name)
            if place < num_moved:
                self._removals.append((book.tier, name))
            elif transfer.is_cancelled and self._manager.computed_block(*name) is not None:
                book.note(move.record)

    def _take_load(self, transfer: Transfer, book: TierBook, num_moved: int, lost: Sequence[BlockName]) -> None:
        book.directory.end_reading(transfer.reading)
        for group, block_hash in lost:
            if (group, block_hash) in book.directory:
                book.directory.remove((group, block_hash))
                book.num_lost += 1
                for observer in self._observers:
                    observer.removed(book.tier, group, block_hash)
        if transfer.load is not None:
            del transfer.load.open[transfer.plan.transfer_id]
            for place in transfer.places[:num_moved]:
                transfer.load.has_come[place] = True
            book.num_loaded += num_moved


def _name(block: MissingBlock) -> BlockName:
    return block.group, block.block_hash
