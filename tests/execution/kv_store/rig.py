"""Drives stores in tests: device blocks in arrays, records made from numbers, waiting for events, files that fail."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

from octavo.execution.kv_store import TierStore, disk_store, host_store
from octavo.execution.kv_store.slot_file import DiskFile
from octavo.execution.protocols import Bytes
from octavo.kv.record import BlockRecord, Tier
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.kv.transfer import BlockMove, Direction, TransferEvent, TransferPlan, TransferState

PATIENCE_S = 20.0
"""For what happens at once; only a test that fails waits so long."""
BLOCK_SIZE, NUM_BLOCKS = 4, 64


def layout(*, head_dims: Sequence[int] = (8, 16), num_blocks: int = NUM_BLOCKS) -> KVLayout:
    """A group for each head size, so blocks of different sizes."""
    specs = tuple(AttentionSpec(num_kv_heads=2, head_dim=dim) for dim in head_dims)
    return lay_out(specs, num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype=KVDtype.FP16)


class Device:
    """A `KVMemory` of plain arrays."""

    def __init__(self, kv_layout: KVLayout) -> None:
        sizes = [group.bytes_per_block(kv_layout.block_size, kv_layout.dtype) for group in kv_layout.groups]
        self.layout = kv_layout
        self.blocks = [np.zeros((kv_layout.num_blocks, size), np.uint8) for size in sizes]

    def block_bytes(self, group: int) -> int:
        return self.blocks[group].shape[1]

    def read_block(self, group: int, block_id: int, out: Bytes) -> None:
        out[...] = self.blocks[group][block_id]

    def write_block(self, group: int, block_id: int, data: Bytes) -> None:
        self.blocks[group][block_id] = data


def record(number: int, group: int = 0, salt: str | None = None) -> BlockRecord:
    """Block `number` of a chain."""
    return BlockRecord(
        group=group,
        block_hash=sha256(f"block {number}".encode()).digest(),
        parent_hash=sha256(f"block {number - 1}".encode()).digest() if number else None,
        token_ids=tuple(range(number, number + BLOCK_SIZE)),
        cache_salt=salt,
    )


def content(number: int, group: int, size: int) -> Bytes:
    """What the device block of a record holds, never zero."""
    return np.random.default_rng((number, group)).integers(1, 256, size, np.uint8)


@dataclass
class Rig:
    """A store over a device, and the events that came of it."""

    device: Device
    store: TierStore = field(init=False)
    seen: list[TransferEvent] = field(default_factory=list)
    _arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _next_id: int = 0

    def notify(self) -> None:
        self._arrived.release()

    def plan(self, direction: Direction, moves: Sequence[tuple[int, BlockRecord]]) -> TransferPlan:
        self._next_id += 1
        return TransferPlan(
            transfer_id=self._next_id,
            direction=direction,
            tier=self.store.tier,
            moves=tuple(BlockMove(block_id=block, record=rec) for block, rec in moves),
            after_step=-1,
            lease_s=1.0,
        )

    def fill(self, numbers: Sequence[int], group: int = 0, first_block: int = 1) -> list[tuple[int, BlockRecord]]:
        """Device blocks with the content of records."""
        for block, number in enumerate(numbers, first_block):
            self.device.blocks[group][block] = content(number, group, self.device.block_bytes(group))
        return [(block, record(number, group)) for block, number in enumerate(numbers, first_block)]

    def begin(self, direction: Direction, moves: Sequence[tuple[int, BlockRecord]]) -> int:
        plan = self.plan(direction, moves)
        self.store.start(plan)
        return plan.transfer_id

    def event(self, transfer_id: int, *states: TransferState) -> TransferEvent:
        """Waits for the event of a transfer, by default its last."""
        wanted = states or (TransferState.DONE, TransferState.FAILED)
        while True:
            self.seen += self.store.poll()
            for event in self.seen:
                if event.transfer_id == transfer_id and event.state in wanted:
                    return event
            assert self._arrived.acquire(timeout=PATIENCE_S), f"no event of transfer {transfer_id}"

    def run(self, direction: Direction, moves: Sequence[tuple[int, BlockRecord]]) -> TransferEvent:
        return self.event(self.begin(direction, moves))

    def stored(self, numbers: Sequence[int], group: int = 0) -> TransferEvent:
        """Stores blocks of these numbers."""
        return self.run(Direction.STORE, self.fill(numbers, group))

    def loaded(self, numbers: Sequence[int], group: int = 0, first_block: int = 33) -> TransferEvent:
        """Loads blocks of these numbers into device blocks that held something else."""
        self.device.blocks[group][first_block : first_block + len(numbers)] = 0
        return self.run(
            Direction.LOAD, [(block, record(number, group)) for block, number in enumerate(numbers, first_block)]
        )

    def right(self, numbers: Sequence[int], group: int = 0, first_block: int = 33) -> list[bool]:
        """Which device blocks hold what their record says."""
        size = self.device.block_bytes(group)
        return [
            bool((self.device.blocks[group][block] == content(number, group, size)).all())
            for block, number in enumerate(numbers, first_block)
        ]


@contextmanager
def host_rig(*, capacity_bytes: int = 1 << 20, kv_layout: KVLayout | None = None) -> Iterator[Rig]:
    rig = Rig(Device(kv_layout or layout()))
    rig.store = host_store(rig.device, rig.device.layout, capacity_bytes, rig.notify)
    yield rig
    rig.store.close()


@contextmanager
def disk_rig(
    path: Path,
    *,
    size_bytes: int = 1 << 20,
    fingerprint: str = "model",
    kv_layout: KVLayout | None = None,
    open_file: Callable[[Path], DiskFile] = DiskFile,
) -> Iterator[Rig]:
    """A disk store that its path did not refuse; `inventory` has not been asked for."""
    rig = Rig(Device(kv_layout or layout()))
    store = disk_store(rig.device, rig.device.layout, path, size_bytes, fingerprint, rig.notify, open_file)
    assert store is not None
    rig.store = store
    del store  # nobody but the rig knows it
    yield rig
    rig.store.close()


@contextmanager
def rig_of(tier: Tier, path: Path) -> Iterator[Rig]:
    """Either kind of store, empty and ready."""
    with host_rig() if tier is Tier.HOST else disk_rig(path) as rig:
        assert rig.store.inventory() == []
        yield rig


class FaultyFile(DiskFile):
    """A file whose calls fail or hang on demand."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path
        self.error: OSError | None = None
        """Raised by each write."""
        self.read_error: OSError | None = None
        self.gate: threading.Event | None = None
        """Each read and write waits for it."""
        self.reached = threading.Event()
        """Somebody waits at the gate."""

    def _pass(self) -> None:
        if self.gate is not None:
            self.reached.set()
            assert self.gate.wait(PATIENCE_S)

    def read(self, offset: int, out: memoryview) -> int:
        self._pass()
        if self.read_error is not None:
            raise self.read_error
        return super().read(offset, out)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        self._pass()
        if self.error is not None:
            raise self.error
        super().write(offset, data)


class FaultyFiles:
    """Opens files that can be made to fail."""

    def __init__(self) -> None:
        self.by_name: dict[str, FaultyFile] = {}

    def __call__(self, path: Path) -> FaultyFile:
        self.by_name[path.name] = FaultyFile(path)
        return self.by_name[path.name]

    @property
    def blocks(self) -> FaultyFile:
        return self.by_name["blocks"]


def folder(path: Path) -> Path:
    """The only folder under a path."""
    (only,) = path.glob("kv1-*")
    return only


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Turns over one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)
