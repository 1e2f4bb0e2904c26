"""A stand-in for the store of a tier: time is a number of ticks, faults come as scripted, and nobody gets away with
touching a block in transit.

While a load is under way its device blocks hold garbage. A store reads its blocks when it starts and again when it
lets go of them: whatever has written there meanwhile raises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.execution.protocols import Bytes, KVMemory
from octavo.kv.record import BlockRecord, Tier
from octavo.kv.transfer import BlockName, Direction, TransferEvent, TransferPlan, TransferState


class TransferViolationError(RuntimeError):
    """A plan that no store could obey, or a block that was touched in transit."""


@dataclass(frozen=True)
class Fate:
    """What becomes of one transfer."""

    ticks: int = 1
    """From its start to its end; 0: it has ended when `start` returns."""
    stalls: bool = False
    """It never ends by itself."""
    fails_after: int | None = None
    """It fails when so many blocks have arrived."""
    loses: bool = False
    """Failing, it turns out not to hold the block at which it failed."""
    repeats: bool = False
    """Each of its events comes twice."""
    ends_late: bool = False
    """Cancelled, it says DONE after all."""


FateScript = Callable[[TransferPlan], Fate]


def all_goes_well(plan: TransferPlan) -> Fate:
    """The default `FateScript`."""
    return Fate()


@dataclass
class _Job:
    plan: TransferPlan
    fate: Fate
    ticks_left: int
    contents: list[Bytes]
    """Of a store: what it is to bring."""


class ScriptedStore:
    """A `KVStore` whose clock is `tick`."""

    def __init__(
        self,
        tier: Tier,
        capacity_bytes: int,
        memory: KVMemory,
        notify: Callable[[], None] = lambda: None,
        fates: FateScript = all_goes_well,
        num_bytes: Callable[[BlockRecord], int] | None = None,
    ) -> None:
        """
        Args:
            num_bytes: what a block takes here; None: what it takes on the device.
        """
        self.tier = tier
        self.capacity_bytes = capacity_bytes
        self.blocks: dict[BlockName, tuple[BlockRecord, Bytes]] = {}
        """What lies here."""
        self._memory = memory
        self._notify = notify
        self._fates = fates
        self._num_bytes = num_bytes or (lambda record: memory.block_bytes(record.group))
        self._jobs: dict[int, _Job] = {}
        self._known_ids: set[int] = set()
        self._events: list[TransferEvent] = []
        self._closed = False

    def num_bytes(self, record: BlockRecord) -> int:
        """See `KVStore.num_bytes`."""
        return self._num_bytes(record)

    def inventory(self) -> list[BlockRecord]:
        """See `KVStore.inventory`."""
        return [record for record, _ in self.blocks.values()]

    def start(self, plan: TransferPlan) -> None:
        """See `KVStore.start`.

        Raises:
            TransferViolationError: the plan is not executable.
        """
        _demand(not self._closed and plan.tier is self.tier, f"{plan} came to the wrong place")
        _demand(plan.transfer_id not in self._known_ids, f"transfer {plan.transfer_id} came twice")
        _demand(len(plan.moves) > 0, f"transfer {plan.transfer_id} is empty")
        self._known_ids.add(plan.transfer_id)
        fate = self._fates(plan)
        contents = []
        for move in plan.moves:
            if plan.direction is Direction.STORE:
                contents.append(self._read(move.record.group, move.block_id))
            else:
                self._spoil(move.record.group, move.block_id)
        job = self._jobs[plan.transfer_id] = _Job(plan, fate, fate.ticks, contents)
        self._check_room()
        if fate.ticks == 0 and not fate.stalls:
            self._end(job)

    def cancel(self, transfer_id: int) -> None:
        """See `KVStore.cancel`."""
        job = self._jobs.pop(transfer_id, None)
        if job is None:
            return
        self._check_unharmed(job)
        if job.fate.ends_late:
            self._keep(job, len(job.plan.moves))
            self._tell(job, TransferState.DONE, len(job.plan.moves))
        else:
            self._tell(job, TransferState.FAILED, 0, problem="cancelled")

    def remove(self, names: Sequence[BlockName]) -> None:
        """See `KVStore.remove`."""
        for name in names:
            self.blocks.pop(name, None)

    def poll(self) -> list[TransferEvent]:
        """See `KVStore.poll`."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """See `KVStore.close`."""
        self._closed = True
        self._jobs.clear()

    def tick(self) -> None:
        """Time goes on by one. Stores let go of their device blocks one tick before they end."""
        for job in list(self._jobs.values()):
            if job.fate.stalls:
                continue
            job.ticks_left -= 1
            if job.ticks_left == 1 and job.plan.direction is Direction.STORE:
                self._check_unharmed(job)
                self._tell(job, TransferState.RELEASED, 0)
            if job.ticks_left <= 0:
                self._end(job)

    def _end(self, job: _Job) -> None:
        del self._jobs[job.plan.transfer_id]
        count, fails_after = len(job.plan.moves), job.fate.fails_after
        fails = fails_after is not None and fails_after < count
        num_moved = fails_after if fails_after is not None and fails else count
        lost: tuple[BlockName, ...] = ()
        if job.plan.direction is Direction.STORE:
            if job.ticks_left > 1 or job.fate.ticks < 2:
                self._check_unharmed(job)
            self._keep(job, num_moved)
        else:
            lost, num_moved = self._load(job, num_moved, loses=fails and job.fate.loses)
        state = TransferState.FAILED if lost or num_moved < count else TransferState.DONE
        self._tell(job, state, num_moved, lost, "" if state is TransferState.DONE else "as scripted")

    def _keep(self, job: _Job, num_moved: int) -> None:
        if job.plan.direction is Direction.STORE:
            for move, content in list(zip(job.plan.moves, job.contents, strict=True))[:num_moved]:
                self.blocks[move.record.group, move.record.block_hash] = (move.record, content)
            self._check_room()

    def _load(self, job: _Job, num_moved: int, *, loses: bool) -> tuple[tuple[BlockName, ...], int]:
        """Brings the first blocks; returns what was lost, and how many came."""
        for place, move in enumerate(job.plan.moves):
            name = (move.record.group, move.record.block_hash)
            if place == num_moved:
                if loses:
                    self.blocks.pop(name, None)
                return ((name,) if loses else ()), place
            _demand(name in self.blocks, f"{name} is to be loaded, but does not lie in the {self.tier} tier")
            record, content = self.blocks[name]
            _demand(record == move.record, f"{move.record} is not what was stored: {record}")
            self._memory.write_block(move.record.group, move.block_id, content)
        return (), len(job.plan.moves)

    def _tell(
        self,
        job: _Job,
        state: TransferState,
        num_moved: int,
        lost: tuple[BlockName, ...] = (),
        problem: str = "",
    ) -> None:
        num_bytes = sum(self._memory.block_bytes(move.record.group) for move in job.plan.moves[:num_moved])
        event = TransferEvent(
            transfer_id=job.plan.transfer_id,
            state=state,
            num_moved=num_moved,
            lost=lost,
            num_bytes=num_bytes,
            seconds=float(job.fate.ticks),
            problem=problem,
        )
        self._events += [event] * (2 if job.fate.repeats else 1)
        self._notify()

    # ---- the device

    def _read(self, group: int, block_id: int) -> Bytes:
        out = np.empty(self._memory.block_bytes(group), np.uint8)
        self._memory.read_block(group, block_id, out)
        return out

    def _spoil(self, group: int, block_id: int) -> None:
        self._memory.write_block(group, block_id, np.zeros(self._memory.block_bytes(group), np.uint8))

    def _check_unharmed(self, job: _Job) -> None:
        """Nobody has written to device blocks of this transfer while it was under way."""
        expected = job.contents or [
            np.zeros(self._memory.block_bytes(m.record.group), np.uint8) for m in job.plan.moves
        ]
        for move, content in zip(job.plan.moves, expected, strict=True):
            same = np.array_equal(self._read(move.record.group, move.block_id), content)
            _demand(same, f"block {move.block_id} was written while transfer {job.plan.transfer_id} was under way")

    def _check_room(self) -> None:
        lying = {name: self.num_bytes(record) for name, (record, _) in self.blocks.items()}
        for job in self._jobs.values():
            if job.plan.direction is Direction.STORE:
                lying |= {(m.record.group, m.record.block_hash): self.num_bytes(m.record) for m in job.plan.moves}
        _demand(sum(lying.values()) <= self.capacity_bytes, f"more lies in the {self.tier} tier than fits")


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise TransferViolationError(problem)
