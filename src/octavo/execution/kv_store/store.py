"""The store of a tier: transfers between device blocks and a medium, in threads of their own."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isnan, nan

from octavo.execution.kv_store.lane import Lane
from octavo.execution.kv_store.medium import BlockLostError, Medium, NoRoomError, Place
from octavo.execution.protocols import KVMemory
from octavo.kv.record import BlockRecord, Tier
from octavo.kv.transfer import BlockMove, BlockName, Direction, TransferEvent, TransferPlan, TransferState

log = logging.getLogger(__name__)

DRAIN_S = 0.7
"""Time that stores under way get to finish when the engine closes: what was asked last is what is asked next."""
LEAVE_S = 0.1
"""Time that a thread then gets to end; one that hangs in a call to the system is left to itself."""


@dataclass
class _Job:
    """A transfer under way. Changed under the store's lock."""

    plan: TransferPlan
    num_moved: int = 0
    num_bytes: int = 0
    began_s: float = nan
    """When its thread came to it."""
    over: bool = False
    """DONE or FAILED was reported: no device block is touched any more."""


class _OverError(Exception):
    """The job was ended by somebody else while it worked."""


class _Door:
    """Whoever leaves last closes the medium: a thread that hangs may still be using it."""

    def __init__(self, medium: Medium, num_lanes: int) -> None:
        self._medium = medium
        self._num_lanes = num_lanes
        self._lock = threading.Lock()

    def leave(self) -> None:
        """A lane has ended."""
        with self._lock:
            self._num_lanes -= 1
            is_last = self._num_lanes == 0
        if is_last:
            self._medium.close()


def _end(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        lane.stop()
    for lane in lanes:
        lane.join(LEAVE_S)


class TierStore:
    """A `KVStore` over any medium.

    One thread stores and removes, another loads, so that a load waits for no store. Whatever may take long is done on
    memory of the store's own. One lock guards the jobs, the events and each copy from or to a device block; so whoever
    has ended a job knows that its blocks are left alone, even while its thread still hangs in a read of the disk.
    """

    def __init__(
        self,
        tier: Tier,
        medium: Medium,
        memory: KVMemory,
        notify: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`notify` is called, from any thread and without a lock, when `poll` has something; after `close` no more."""
        self.tier = tier
        self.capacity_bytes = medium.capacity_bytes
        self._medium = medium
        self._memory = memory
        self._notify = notify
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._events: list[TransferEvent] = []
        self._closed = False
        door = _Door(medium, 2)
        self._stores = Lane(f"kv-store-{tier}", door.leave)
        self._loads = Lane(f"kv-load-{tier}", door.leave)
        self._end_lanes = weakref.finalize(self, _end, (self._stores, self._loads))
        """Also when the store is dropped, or the program ends, without `close`."""

    def num_bytes(self, record: BlockRecord) -> int:
        """See `KVStore.num_bytes`."""
        return self._medium.num_bytes(record)

    def inventory(self) -> list[BlockRecord]:
        """See `KVStore.inventory`."""
        return self._medium.inventory()

    def start(self, plan: TransferPlan) -> None:
        """See `KVStore.start`."""
        job = _Job(plan)
        with self._lock:
            self._jobs[plan.transfer_id] = job
        lane, work = (self._stores, self._store) if plan.direction is Direction.STORE else (self._loads, self._load)
        if not lane.put(partial(self._run, work, job)):
            self._end(job, TransferState.FAILED, problem=f"the {self.tier} store is closed, or too much waits for it")

    def cancel(self, transfer_id: int) -> None:
        """See `KVStore.cancel`."""
        with self._lock:
            job = self._jobs.get(transfer_id)
        if job is not None:
            self._end(job, TransferState.FAILED, problem="cancelled")

    def remove(self, names: Sequence[BlockName]) -> None:
        """See `KVStore.remove`."""
        self._stores.put(partial(self._medium.remove, tuple(names)), always=True)

    def poll(self) -> list[TransferEvent]:
        """See `KVStore.poll`."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """See `KVStore.close`. Stores under way get most of that second."""
        with self._lock:
            closed, self._closed = self._closed, True
            jobs = list(self._jobs.values())
        if closed:
            return
        self._give_up([job for job in jobs if job.plan.direction is Direction.LOAD])
        self._stores.stop()
        self._loads.stop()
        self._stores.join(DRAIN_S)
        self._give_up(jobs)
        self._end_lanes()

    def _give_up(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            self._end(job, TransferState.FAILED, problem="the engine closes")

    # --- in the lanes ---------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[_Job], None], job: _Job) -> None:
        job.began_s = self._clock()
        try:
            with self._touching(job):
                pass  # ended while it waited: nothing is begun
            work(job)
        except _OverError:
            return
        except (NoRoomError, OSError) as error:
            self._end(job, TransferState.FAILED, problem=str(error))
        except Exception as error:
            log.exception("transfer %d of the %s store failed", job.plan.transfer_id, self.tier)
            self._end(job, TransferState.FAILED, problem=f"{type(error).__name__}: {error}")
        else:
            self._end(job, TransferState.DONE)

    def _load(self, job: _Job) -> None:
        for place, move in enumerate(job.plan.moves):
            record = move.record
            try:
                data = self._medium.read(record)
            except BlockLostError as error:
                found_s = self._clock()
                lost = ((record.group, record.block_hash), *self._lost(job, job.plan.moves[place + 1 :]))
                job.began_s += self._clock() - found_s  # no time spent on what was moved
                self._end(job, TransferState.FAILED, lost=lost, problem=str(error))
                raise _OverError from None
            with self._touching(job):
                self._memory.write_block(record.group, move.block_id, data)
                self._count(job, move)

    def _lost(self, job: _Job, moves: Sequence[BlockMove]) -> Iterator[BlockName]:
        """Which of the other blocks are lost, too. Damage seldom comes alone, and found out one by one, each by a load
        that fails, it would last."""
        for move in moves:
            if job.over:
                return
            try:
                self._medium.read(move.record)
            except BlockLostError:
                yield move.record.group, move.record.block_hash

    def _store(self, job: _Job) -> None:
        places: list[Place | None] = []
        try:
            for move in job.plan.moves:
                places.append(self._stage(job, move))
            self._report(job, TransferState.RELEASED)
            for index, move in enumerate(job.plan.moves):
                place, places[index] = places[index], None
                self._keep(job, move, place)
        finally:
            for place in places:
                if place is not None:
                    self._medium.give_back(place)

    def _stage(self, job: _Job, move: BlockMove) -> Place | None:
        """A copy of a device block; None if the medium holds it already."""
        record = move.record
        if self._medium.holds((record.group, record.block_hash)):
            return None
        place = self._medium.reserve(record)
        try:
            with self._touching(job):
                self._memory.read_block(record.group, move.block_id, place.data)
        except BaseException:
            self._medium.give_back(place)
            raise
        return place

    def _keep(self, job: _Job, move: BlockMove, place: Place | None) -> None:
        """Keeps a staged block, unless its job was ended meanwhile: then nobody would know that it lies there."""
        if place is not None:
            self._medium.keep(move.record, place)
        try:
            with self._touching(job):
                self._count(job, move)
        except _OverError:
            if place is not None:
                self._medium.remove([(move.record.group, move.record.block_hash)])
            raise

    # --- under the lock -------------------------------------------------------------------------------------------

    @contextmanager
    def _touching(self, job: _Job) -> Iterator[None]:
        """The only place for what touches device blocks.

        Raises:
            _OverError: they are no longer the job's to touch.
        """
        with self._lock:
            if job.over:
                raise _OverError
            yield

    def _count(self, job: _Job, move: BlockMove) -> None:
        job.num_moved += 1
        job.num_bytes += self._memory.block_bytes(move.record.group)

    def _report(self, job: _Job, state: TransferState) -> None:
        with self._touching(job):
            self._events.append(self._event(job, state))
        self._tell()

    def _end(self, job: _Job, state: TransferState, *, lost: tuple[BlockName, ...] = (), problem: str = "") -> None:
        """Ends a job, unless it has ended before."""
        with self._lock:
            if job.over:
                return
            job.over = True
            del self._jobs[job.plan.transfer_id]
            self._events.append(self._event(job, state, lost, problem))
        self._tell()

    def _tell(self) -> None:
        if not self._closed:
            self._notify()

    def _event(
        self, job: _Job, state: TransferState, lost: tuple[BlockName, ...] = (), problem: str = ""
    ) -> TransferEvent:
        return TransferEvent(
            transfer_id=job.plan.transfer_id,
            state=state,
            num_moved=job.num_moved,
            lost=lost,
            num_bytes=job.num_bytes,
            seconds=0.0 if isnan(job.began_s) else self._clock() - job.began_s,
            problem=problem,
        )
