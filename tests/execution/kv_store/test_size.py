"""`--kv-disk-size` holds for all that lies under the path."""

import fcntl
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ConfigError
from octavo.execution.kv_store import disk_store
from octavo.execution.kv_store.folder import OwnedFolder, claim
from octavo.execution.kv_store.medium import NoRoomError
from octavo.kv.transfer import Direction, TransferState
from tests.execution.kv_store.rig import Device, disk_rig, folder, host_rig, layout, record
from tests.execution.kv_store.test_disk import warnings
from tests.execution.kv_store.test_processes import bytes_under

SIZE = 100_000


def used(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("kv1-*/*") if file.name != "lock")


def test_a_store_fills_its_size_and_no_more(tmp_path: Path) -> None:
    with disk_rig(tmp_path, size_bytes=SIZE) as rig:
        rig.store.inventory()
        number = 0
        while rig.stored([number]).state is TransferState.DONE:
            number += 1
            assert used(tmp_path) <= SIZE
        assert number * rig.store.num_bytes(record(0)) <= rig.store.capacity_bytes <= SIZE
        assert used(tmp_path) > 0.9 * SIZE


def test_random_traffic_stays_within_the_size(tmp_path: Path) -> None:
    """As `kv` would: removes before it stores what has no room, now and then starts anew with another size."""
    random.seed(1)
    lying: list[int] = []
    number = 0
    for size in (60_000, 100_000, 30_000, 5_000, 80_000):
        with disk_rig(tmp_path, size_bytes=size) as rig:
            found = [rec.token_ids[0] for rec in rig.store.inventory()]
            assert set(found) <= set(lying)
            lying = found
            room = rig.store.capacity_bytes // rig.store.num_bytes(record(0))
            for _ in range(60):
                count = random.randint(1, min(8, room))
                gone = [lying.pop(random.randrange(len(lying))) for _ in range(len(lying) + count - room)]
                rig.store.remove([(0, record(n).block_hash) for n in gone])
                assert rig.stored(range(number, number + count)).state is TransferState.DONE
                lying += range(number, number + count)
                number += count
                assert used(tmp_path) <= size
            check = random.sample(lying, min(10, len(lying)))
            rig.loaded(check)
            assert all(rig.right(check))


def test_a_smaller_size_keeps_what_fits(tmp_path: Path) -> None:
    with disk_rig(tmp_path, size_bytes=SIZE) as rig:
        rig.store.inventory()
        rig.stored(range(40))
    with disk_rig(tmp_path, size_bytes=SIZE // 4) as rig:
        found = rig.store.inventory()
        assert len(found) == rig.store.capacity_bytes // rig.store.num_bytes(record(0))
        assert 10 < len(found) < 40
        assert used(tmp_path) <= SIZE // 4
        rig.loaded([rec.token_ids[0] for rec in found])
        assert all(rig.right([rec.token_ids[0] for rec in found]))


def test_unowned_folders_go_when_their_room_is_needed_the_longest_unused_first(tmp_path: Path) -> None:
    for model in ("a", "b", "c"):
        with disk_rig(tmp_path, size_bytes=SIZE, fingerprint=model) as rig:
            rig.store.inventory()
            assert rig.stored(range(20)).state is TransferState.DONE
            path = rig.store._medium._folder.path  # type: ignore[attr-defined]
        os.utime(path / "lock", (ord(model), ord(model)))
    before = {path.name for path in tmp_path.glob("kv1-*")}
    with disk_rig(tmp_path, size_bytes=SIZE, fingerprint="a") as rig:  # now the one used last
        assert len(rig.store.inventory()) == 20
        assert {path.name for path in tmp_path.glob("kv1-*")} == before
        gone = []
        for number in range(100, 100 + 60):
            if rig.stored([number]).state is not TransferState.DONE:
                break
            assert used(tmp_path) <= SIZE
            left = {path.name for path in tmp_path.glob("kv1-*")}
            gone += sorted(before - left - set(gone))
        assert len(gone) == 2
    for model in ("b", "c"):
        with disk_rig(tmp_path / model, fingerprint=model) as rig:
            assert folder(tmp_path / model).name == gone.pop(0)


def test_a_size_below_what_others_left_is_reached_at_start(tmp_path: Path) -> None:
    for model in ("a", "b", "c"):
        with disk_rig(tmp_path, size_bytes=SIZE, fingerprint=model) as rig:
            rig.store.inventory()
            rig.stored(range(20))
    with disk_rig(tmp_path, size_bytes=SIZE // 3, fingerprint="d") as rig:
        assert rig.store.inventory() == []
        assert used(tmp_path) <= SIZE // 3


def test_a_folder_with_files_of_others_loses_only_ours(tmp_path: Path) -> None:
    with disk_rig(tmp_path, size_bytes=SIZE, fingerprint="a") as rig:
        rig.store.inventory()
        rig.stored(range(30))
        old = folder(tmp_path)
    (old / "notes").write_text("mine")
    with disk_rig(tmp_path, size_bytes=SIZE // 3, fingerprint="b") as rig:
        rig.store.inventory()
    assert [file.name for file in old.iterdir()] == ["notes"]


def test_claims_of_owners_add_up(tmp_path: Path) -> None:
    first = claim(tmp_path, bytes(32), 1000, 100)
    second = claim(tmp_path, bytes(32), 1500, 100)
    third = claim(tmp_path, b"x" * 32, 1600, 100)
    assert [owned.capacity_bytes for owned in (first, second, third)] == [1000, 500, 100]
    assert len({owned.path for owned in (first, second, third)}) == 3
    with pytest.raises(NoRoomError, match="claimed 1600 bytes"):
        claim(tmp_path, bytes(32), 1650, 100)
    first.release()
    again = claim(tmp_path, bytes(32), 1600, 100)
    assert (again.path, again.capacity_bytes) == (first.path, 1000)
    for owned in (again, second, third):
        owned.release()


def test_a_damaged_claim_counts_as_what_is_there(tmp_path: Path) -> None:
    owned: OwnedFolder = claim(tmp_path, bytes(32), 1000, 100)
    (owned.path / "blocks").write_bytes(bytes(300))
    with (owned.path / "lock").open("r+") as lock:
        lock.write("many")
    other = claim(tmp_path, bytes(32), 1000, 100)
    assert other.capacity_bytes == 700
    other.release()
    owned.release()


def test_a_path_held_by_a_process_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("octavo.execution.kv_store.folder._PATIENCE_S", 0.05)
    device = Device(layout())
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert disk_store(device, device.layout, tmp_path, SIZE, "model", lambda: None) is None
    assert "another process has held" in warnings(caplog)[0]


def test_a_size_without_room_for_a_block_is_a_mistake(tmp_path: Path) -> None:
    device = Device(layout())
    with pytest.raises(ConfigError, match="kv_disk_size_bytes=500: one block of this model takes"):
        disk_store(device, device.layout, tmp_path, 500, "model", lambda: None)


def test_host_memory_is_counted_in_slots() -> None:
    with host_rig(capacity_bytes=10_000) as rig:
        slot = max(rig.device.block_bytes(group) for group in (0, 1))
        assert rig.store.capacity_bytes == 10_000 // slot * slot
        assert {rig.store.num_bytes(record(0, group)) for group in (0, 1)} == {slot}


@pytest.mark.slow
def test_gigabytes_of_blocks_stay_within_a_small_size(tmp_path: Path) -> None:
    """Blocks of SmolLM2's size, in random order of going; what is left is right."""
    random.seed(2)
    size, total = 256 << 20, 4_000_000_000
    kv_layout = layout(head_dims=(11_520,), num_blocks=17)
    with disk_rig(tmp_path, size_bytes=size, kv_layout=kv_layout) as rig:
        rig.store.inventory()
        block_bytes, blocks = rig.device.block_bytes(0), rig.device.blocks[0]
        assert block_bytes == 368_640
        blocks[...] = np.random.default_rng(0).integers(0, 256, blocks.shape, np.uint8)
        room = rig.store.capacity_bytes // rig.store.num_bytes(record(0))
        lying: list[int] = []
        for first in range(0, total // block_bytes, 16):
            numbers = range(first, first + 16)
            gone = [lying.pop(random.randrange(len(lying))) for _ in range(len(lying) + 16 - room)]
            rig.store.remove([(0, record(n).block_hash) for n in gone])
            blocks[1:, :8] = np.array(numbers, "<u8").view(np.uint8).reshape(16, 8)
            moves = [(block, record(number)) for block, number in enumerate(numbers, 1)]
            assert rig.run(Direction.STORE, moves).state is TransferState.DONE
            lying += numbers
        assert used(tmp_path) <= size
        assert len(lying) == room
        for number in random.sample(lying, 50):
            expected = blocks[1 + number % 16].copy()
            expected[:8] = np.array([number], "<u8").view(np.uint8)
            assert rig.run(Direction.LOAD, [(0, record(number))]).state is TransferState.DONE
            assert (blocks[0] == expected).all()


def test_a_large_inventory_is_read_at_once(tmp_path: Path) -> None:
    """Blocks as small as may be, as many as 10 GB of SmolLM2 have. The bound is ten times what it takes here."""
    count = 27_000
    kv_layout = layout(head_dims=(8,), num_blocks=1001)
    with disk_rig(tmp_path, size_bytes=1 << 30, kv_layout=kv_layout) as rig:
        rig.store.inventory()
        for first in range(0, count, 1000):
            assert rig.stored(range(first, first + 1000)).state is TransferState.DONE
    with disk_rig(tmp_path, size_bytes=1 << 30, kv_layout=kv_layout) as rig:
        began = time.thread_time()
        assert len(rig.store.inventory()) == count
        took = time.thread_time() - began
        assert took < 3, took
        print(f"{took:.2f} s")
    assert bytes_under(tmp_path) < 1 << 30
