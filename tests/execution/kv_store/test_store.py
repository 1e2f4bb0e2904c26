"""Transfers, on either tier: what comes back, what is reported, and what ends them early."""

import gc
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo.kv.record import Tier
from octavo.kv.transfer import Direction, TransferState
from tests.execution.kv_store.rig import FaultyFiles, content, disk_rig, host_rig, record, rig_of

TIERS = [Tier.HOST, Tier.DISK]
STORE, LOAD = Direction.STORE, Direction.LOAD


@pytest.mark.parametrize("tier", TIERS)
def test_what_was_stored_is_loaded(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        for group in (0, 1):
            stored = rig.stored(range(10), group)
            assert (stored.state, stored.num_moved) == (TransferState.DONE, 10)
            assert stored.num_bytes == 10 * rig.device.block_bytes(group)
            assert stored.seconds > 0
        for group in (0, 1):
            loaded = rig.loaded([3, 9, 0], group)
            assert (loaded.state, loaded.num_moved, loaded.lost) == (TransferState.DONE, 3, ())
            assert loaded.num_bytes == 3 * rig.device.block_bytes(group)
            assert rig.right([3, 9, 0], group) == [True] * 3


@pytest.mark.parametrize("tier", TIERS)
def test_events_come_in_order_and_once(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        first = rig.stored(range(3)).transfer_id
        second = rig.loaded([0, 1]).transfer_id
        states = [(event.transfer_id, event.state) for event in rig.seen]
        assert states == [
            (first, TransferState.RELEASED),
            (first, TransferState.DONE),
            (second, TransferState.DONE),
        ]
        assert rig.store.poll() == []


@pytest.mark.parametrize("tier", TIERS)
def test_released_blocks_may_be_overwritten(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        transfer = rig.begin(STORE, rig.fill(range(10)))
        rig.event(transfer, TransferState.RELEASED)
        rig.device.blocks[0][1:11] = 0
        assert rig.event(transfer).state is TransferState.DONE
        rig.loaded(range(10))
        assert all(rig.right(range(10)))


@pytest.mark.parametrize("tier", TIERS)
def test_a_block_that_lies_there_stays_as_it_is(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        rig.stored([1, 2])
        moves = rig.fill([1, 2, 3])
        rig.device.blocks[0][1] = 0  # equal names mean equal bits, so nobody looks
        assert rig.run(STORE, moves).num_moved == 3
        rig.loaded([1, 2, 3])
        assert all(rig.right([1, 2, 3]))


@pytest.mark.parametrize("tier", TIERS)
def test_a_load_ends_where_a_block_is_lost(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        rig.stored([0, 1, 3])
        event = rig.loaded([0, 1, 2, 3, 4])
        assert (event.state, event.num_moved) == (TransferState.FAILED, 2)
        assert event.lost == ((0, record(2).block_hash), (0, record(4).block_hash))
        assert "does not hold" in event.problem
        assert rig.right([0, 1, 2, 3, 4]) == [True, True, False, False, False]


@pytest.mark.parametrize("tier", TIERS)
def test_removed_blocks_make_room_before_what_is_asked_next(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        room = rig.store.capacity_bytes // rig.store.num_bytes(record(0))
        for first in range(0, room, 50):
            assert rig.stored(range(first, min(first + 50, room))).state is TransferState.DONE
        full = rig.stored([room])
        assert full.state is TransferState.FAILED
        assert "no slot is free" in full.problem
        for number in range(30):
            rig.store.remove([(0, record(number).block_hash), (0, b"unknown")])
            assert rig.stored([room + 1 + number]).state is TransferState.DONE
        assert rig.loaded([29]).lost == ((0, record(29).block_hash),)
        rig.loaded([30, room + 30])
        assert all(rig.right([30, room + 30]))


@pytest.mark.parametrize("tier", TIERS)
def test_an_unknown_transfer_or_one_that_ended_is_not_cancelled(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        rig.store.cancel(99)
        done = rig.stored([0])
        rig.store.cancel(done.transfer_id)
        assert rig.store.poll() == []


def test_a_memory_that_fails_ends_the_transfer_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    with host_rig() as rig:
        event = rig.run(STORE, [(10_000, record(0))])  # no such device block
        assert event.state is TransferState.FAILED
        assert "IndexError" in event.problem
        assert "failed" in caplog.text
        assert rig.stored(range(5)).state is TransferState.DONE
        slots = rig.store.capacity_bytes // rig.store.num_bytes(record(0))
        assert slots - 5 == len(rig.store._medium._free)  # type: ignore[attr-defined]  # none leaked


def test_a_cancelled_load_that_hangs_touches_nothing_more(tmp_path: Path) -> None:
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        rig.stored(range(4))
        gate = files.blocks.gate = threading.Event()
        transfer = rig.begin(LOAD, [(block, record(block - 33)) for block in range(33, 37)])
        assert files.blocks.reached.wait(20)
        rig.store.cancel(transfer)
        (event,) = rig.store.poll()  # at once, though the read still hangs
        assert (event.state, event.num_moved, event.problem) == (TransferState.FAILED, 0, "cancelled")
        gate.set()
        files.blocks.gate = None
        rig.loaded([0, 1], first_block=50)  # the thread has gone on
        assert all(rig.right([0, 1], first_block=50))
        assert not rig.device.blocks[0][33:37].any()
        assert rig.store.poll() == []


def test_a_cancelled_store_that_hangs_leaves_no_block_that_nobody_knows_of(tmp_path: Path) -> None:
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        gate = files.blocks.gate = threading.Event()
        transfer = rig.begin(STORE, rig.fill([0, 1]))
        rig.event(transfer, TransferState.RELEASED)
        assert files.blocks.reached.wait(20)
        rig.store.cancel(transfer)
        assert [event.state for event in rig.store.poll()] == [TransferState.FAILED]
        gate.set()
        files.blocks.gate = None
        assert rig.stored([2]).state is TransferState.DONE
        assert rig.loaded([0]).lost == ((0, record(0).block_hash),)
        assert rig.loaded([1]).lost == ((0, record(1).block_hash),)
    with disk_rig(tmp_path) as rig:
        assert rig.store.inventory() == [record(2)]


def test_what_waits_behind_a_hanging_job_is_cancelled_at_once(tmp_path: Path) -> None:
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        gate = files.blocks.gate = threading.Event()
        rig.begin(STORE, rig.fill([0]))
        assert files.blocks.reached.wait(20)
        rig.store.poll()
        waiting = rig.begin(STORE, rig.fill([7], first_block=7))
        rig.store.cancel(waiting)
        assert [(event.transfer_id, event.state) for event in rig.store.poll()] == [(waiting, TransferState.FAILED)]
        gate.set()
        files.blocks.gate = None


def test_loads_do_not_wait_for_stores(tmp_path: Path) -> None:
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        rig.stored([0])
        gate = files.by_name["entries"].gate = threading.Event()
        storing = rig.begin(STORE, rig.fill([1]))
        assert files.by_name["entries"].reached.wait(20)
        files.by_name["entries"].gate = None  # a load renews a stamp there
        assert rig.loaded([0]).state is TransferState.DONE
        assert not [event for event in rig.seen if event.transfer_id == storing and event.state is TransferState.DONE]
        gate.set()
        assert rig.event(storing).state is TransferState.DONE


def test_a_queue_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.execution.kv_store.lane.MAX_QUEUED", 3)
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        gate = files.blocks.gate = threading.Event()
        transfers = [rig.begin(STORE, rig.fill([0]))]
        assert files.blocks.reached.wait(20)
        transfers += [rig.begin(STORE, rig.fill([number], first_block=1 + number)) for number in range(1, 6)]
        refused = rig.event(transfers[-1])
        assert (refused.state, refused.num_moved) == (TransferState.FAILED, 0)
        assert "too much waits" in refused.problem
        gate.set()
        files.blocks.gate = None
        assert [rig.event(transfer).state for transfer in transfers[:4]] == [TransferState.DONE] * 4


@pytest.mark.parametrize("tier", TIERS)
def test_closing_finishes_what_is_being_stored(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        transfers = [rig.begin(STORE, rig.fill([n], first_block=1 + n)) for n in range(20)]
        rig.store.close()
        rig.store.close()
        assert [rig.event(transfer).state for transfer in transfers] == [TransferState.DONE] * 20
        late = rig.run(STORE, rig.fill([30]))
        assert late.state is TransferState.FAILED
        assert "closed" in late.problem
    if tier is Tier.DISK:
        with disk_rig(tmp_path) as again:
            assert len(again.store.inventory()) == 20


@pytest.mark.parametrize("direction", [STORE, LOAD])
def test_closing_waits_for_nothing_that_hangs(direction: Direction, tmp_path: Path) -> None:
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        rig.stored([0])
        gate = files.blocks.gate = threading.Event()
        moves = rig.fill([1]) if direction is STORE else [(33, record(0))]
        transfers = [rig.begin(direction, moves) for _ in range(3)]
        assert files.blocks.reached.wait(20)
        rig.store.close()
        assert [rig.event(transfer).state for transfer in transfers] == [TransferState.FAILED] * 3
        rig.device.blocks[0][...] = 0
        gate.set()
        lane = rig.store._stores if direction is STORE else rig.store._loads
        assert lane.join(20)  # it ends by itself
        assert not rig.device.blocks[0].any()


def test_a_seconds_figure_leaves_the_queue_out(tmp_path: Path) -> None:
    files, now = FaultyFiles(), [0.0]
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store._clock = lambda: now[0]
        rig.store.inventory()
        gate = files.blocks.gate = threading.Event()
        first = rig.begin(STORE, rig.fill([0]))
        second = rig.begin(STORE, rig.fill([1], first_block=2))
        assert files.blocks.reached.wait(20)
        now[0] = 5.0
        gate.set()
        files.blocks.gate = None
        assert [rig.event(transfer).seconds for transfer in (first, second)] == [5.0, 0.0]


@pytest.mark.parametrize("tier", TIERS)
def test_a_store_that_is_forgotten_ends_its_threads_and_lets_the_memory_go(tier: Tier, tmp_path: Path) -> None:
    with rig_of(tier, tmp_path) as rig:
        rig.stored(range(3))
        lanes, device = (rig.store._stores, rig.store._loads), weakref.ref(rig.device)
        del rig.store, rig.device
        gc.collect()
        assert all(lane.join(20) for lane in lanes)
        assert device() is None
        rig.store, rig.device = SimpleNamespace(close=lambda: None), None  # type: ignore[assignment]
    if tier is Tier.DISK:
        with disk_rig(tmp_path) as again:
            assert len(again.store.inventory()) == 3


def test_content_differs() -> None:
    """The helpers can fail."""
    assert (content(1, 0, 100) != content(2, 0, 100)).any()
    with host_rig() as rig:
        rig.fill([1, 2])
        assert rig.right([1, 3], first_block=1) == [True, False]
