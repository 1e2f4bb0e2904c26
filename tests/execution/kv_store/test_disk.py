"""What lies on disk is found again after a restart, or left out: damaged, foreign, in the way of somebody else."""

import errno
import logging
import os
import re
import stat
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.execution.kv_store import disk_store
from octavo.execution.kv_store.entry import HEAD_BYTES, EntryFormat
from octavo.kv.record import BlockRecord
from octavo.kv.transfer import Direction, TransferState
from tests.execution.kv_store.rig import Device, FaultyFiles, disk_rig, flip, folder, layout, record

STORE = Direction.STORE
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


def fill_path(path: Path, count: int = 6, **choices: object) -> None:
    """Blocks 0 to count - 1 of either group."""
    with disk_rig(path, **choices) as rig:  # type: ignore[arg-type]
        rig.store.inventory()
        for group in (0, 1):
            assert rig.stored(range(count), group).state is TransferState.DONE


def sound(path: Path, count: int = 6) -> list[tuple[int, int]]:
    """(group, number) of the blocks that are listed and load with the right bytes. None loads with others."""
    good = []
    with disk_rig(path) as rig:
        listed = set(rig.store.inventory())
        for group in (0, 1):
            for number in range(count):
                event = rig.loaded([number], group)
                done = event.state is TransferState.DONE
                assert done == rig.right([number], group)[0]
                assert done or event.lost == ((group, record(number).block_hash),)
                assert record(number, group) in listed or not done
                if done:
                    good.append((group, number))
    return good


def everything(count: int = 6) -> list[tuple[int, int]]:
    return [(group, number) for group in (0, 1) for number in range(count)]


def entry_format() -> EntryFormat:
    device = Device(layout())
    return EntryFormat(bytes(32), 4, max(device.block_bytes(0), device.block_bytes(1)))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_a_restart_finds_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill_path(tmp_path)
    assert sound(tmp_path) == everything()
    assert sound(tmp_path) == everything()
    assert not warnings(caplog)


def test_records_come_back_whole_in_order_of_use(tmp_path: Path) -> None:
    records = [record(0), record(1, salt="tenant"), record(2, salt=""), record(3, salt="ü" * 128)]
    with disk_rig(tmp_path) as rig:
        rig.store.inventory()
        moves = [(block, rec) for (block, _), rec in zip(rig.fill(range(4)), records, strict=True)]
        assert rig.run(STORE, moves).state is TransferState.DONE
    with disk_rig(tmp_path) as rig:
        assert rig.store.inventory() == records
        rig.loaded([1, 0])
    with disk_rig(tmp_path) as rig:
        assert rig.store.inventory() == [records[2], records[3], records[1], records[0]]


def test_a_salt_that_no_entry_holds_is_refused(tmp_path: Path) -> None:
    with disk_rig(tmp_path) as rig:
        rig.store.inventory()
        ((block, _),) = rig.fill([0])
        event = rig.run(STORE, [(block, record(0, salt="s" * 513))])
        assert event.state is TransferState.FAILED
        assert "salt" in event.problem


def test_removed_blocks_stay_removed(tmp_path: Path) -> None:
    with disk_rig(tmp_path) as rig:
        rig.store.inventory()
        rig.stored(range(4))
        rig.store.remove([(0, record(number).block_hash) for number in (0, 2)])
    with disk_rig(tmp_path) as rig:
        assert rig.store.inventory() == [record(1), record(3)]


def test_slots_are_used_again(tmp_path: Path) -> None:
    fill_path(tmp_path, 10)
    size = (folder(tmp_path) / "blocks").stat().st_size
    with disk_rig(tmp_path) as rig:
        for group in (0, 1):
            rig.store.remove([(rec.group, rec.block_hash) for rec in rig.store.inventory() if rec.group == group])
            rig.stored(range(20, 30), group)
    assert (folder(tmp_path) / "blocks").stat().st_size == size


# --- damage -----------------------------------------------------------------------------------------------------------


def test_any_flipped_bit_of_an_entry_costs_that_block_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bits of each field: mark, group, size, fingerprint, hash, parent, salt, digests, tokens, padding."""
    form = entry_format()
    for at in [*range(0, 160, 7), form.stamp_at - 520, form.stamp_at - 17, form.stamp_at - 1]:
        path = tmp_path / str(at)
        fill_path(path)
        flip(folder(path) / "entries", HEAD_BYTES + 2 * form.num_bytes + at, bit=at % 8)
        caplog.clear()
        assert sound(path) == [name for name in everything() if name != (0, 2)], at
        (warning,) = warnings(caplog)
        assert "1 KV blocks are left out" in warning


def test_a_flipped_stamp_costs_nothing(tmp_path: Path) -> None:
    form = entry_format()
    fill_path(tmp_path)
    flip(folder(tmp_path) / "entries", HEAD_BYTES + form.stamp_at)
    assert sound(tmp_path) == everything()


@pytest.mark.parametrize("at", [0, 57, 511])
def test_a_flipped_bit_of_a_block_is_found_out_when_it_is_loaded(
    at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill_path(tmp_path)
    flip(folder(tmp_path) / "blocks", (6 + 3) * entry_format().slot_bytes + at)  # block 3 of group 1
    assert sound(tmp_path) == [name for name in everything() if name != (1, 3)]
    (warning,) = warnings(caplog)
    assert "damaged" in warning
    caplog.clear()
    assert len(sound(tmp_path)) == 11  # it has been erased
    assert not warnings(caplog)


@pytest.mark.parametrize("at", [0, 8, 20, 40, 70])
def test_a_damaged_head_costs_everything_and_no_more(at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill_path(tmp_path)
    flip(folder(tmp_path) / "entries", at)
    assert sound(tmp_path) == []
    (warning,) = warnings(caplog)
    assert "left out" in warning
    fill_path(tmp_path)
    assert sound(tmp_path) == everything()


def test_files_may_end_anywhere(tmp_path: Path) -> None:
    form = entry_format()
    lengths = {
        "entries": [0, 1, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1]
        + [HEAD_BYTES + 3 * form.num_bytes + extra for extra in (-1, 0, 1, form.stamp_at)],
        "blocks": [0, 1] + [3 * form.slot_bytes + extra for extra in (-1, 0, 1)],
    }
    for name, length in [(file, length) for file in lengths for length in lengths[file]]:
        path = tmp_path / f"{name}-{length}"
        fill_path(path)
        os.truncate(folder(path) / name, length)
        whole = length // form.slot_bytes if name == "blocks" else (length - HEAD_BYTES) // form.num_bytes
        survivors = sound(path)
        # Of group 0 slots are as large as the blocks of group 1, so a block may end before its slot does.
        assert set(survivors) >= set(everything()[: max(0, whole)]), (name, length)
        assert len(survivors) <= max(0, whole) + 1, (name, length)


def test_a_block_under_the_name_of_another_is_not_believed(tmp_path: Path) -> None:
    """As after a crash of the system, when an entry reached the disk and its block did not."""
    fill_path(tmp_path)
    form, blocks = entry_format(), folder(tmp_path) / "blocks"
    data = bytearray(blocks.read_bytes())
    data[form.slot_bytes : 2 * form.slot_bytes] = data[: form.slot_bytes]
    blocks.write_bytes(data)
    assert sound(tmp_path) == [name for name in everything() if name != (0, 1)]


def test_a_file_of_blocks_that_is_gone_costs_its_blocks(tmp_path: Path) -> None:
    fill_path(tmp_path)
    (folder(tmp_path) / "blocks").unlink()
    assert sound(tmp_path) == []
    fill_path(tmp_path)
    assert sound(tmp_path) == everything()


# --- foreign ----------------------------------------------------------------------------------------------------------


def test_blocks_of_another_model_or_format_are_not_seen_and_not_touched(tmp_path: Path) -> None:
    fill_path(tmp_path, fingerprint="weights a, fp16")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.name != "lock"}
    assert len(before) == 2
    with disk_rig(tmp_path, fingerprint="weights a, int8") as rig:
        assert rig.store.inventory() == []
        assert rig.loaded([0]).state is TransferState.FAILED
    assert {file: file.read_bytes() for file in before} == before


def test_folders_of_another_format_are_left_alone(tmp_path: Path) -> None:
    fill_path(tmp_path)
    later = folder(tmp_path).rename(tmp_path / folder(tmp_path).name.replace("kv1", "kv2"))
    before = (later / "entries").read_bytes()
    assert sound(tmp_path) == []
    assert (later / "entries").read_bytes() == before


def test_files_that_were_moved_into_the_place_of_others_are_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill_path(tmp_path, fingerprint="a")
    moved = folder(tmp_path)
    with disk_rig(tmp_path / "other", fingerprint="b") as rig:
        rig.store.inventory()
        target = folder(tmp_path / "other")
    for name in ("entries", "blocks"):
        (moved / name).replace(target / name)
    with disk_rig(tmp_path / "other", fingerprint="b") as rig:
        assert rig.store.inventory() == []
        assert rig.loaded([0]).state is TransferState.FAILED
    (warning,) = warnings(caplog)
    assert "another model" in warning


def test_an_entry_of_another_model_is_not_believed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill_path(tmp_path / name, fingerprint=name)
    form = entry_format()
    entry = slice(HEAD_BYTES + form.num_bytes, HEAD_BYTES + 2 * form.num_bytes)
    files = [folder(tmp_path / name) / "entries" for name in ("a", "b")]
    data = bytearray(files[1].read_bytes())
    data[entry] = files[0].read_bytes()[entry]
    files[1].write_bytes(data)
    with disk_rig(tmp_path / "b", fingerprint="b") as rig:
        assert record(1) not in rig.store.inventory()
        assert rig.loaded([1]).state is TransferState.FAILED


def test_a_layout_that_has_changed_is_not_believed(tmp_path: Path) -> None:
    """The fingerprint holds the layout, so this cannot be; it is not relied on."""
    fill_path(tmp_path)
    for head_dims in ((16, 8), (16,), (8, 24)):
        with disk_rig(tmp_path, kv_layout=layout(head_dims=head_dims)) as rig:
            assert rig.store.inventory() == []
        fill_path(tmp_path)


@pytest.mark.parametrize("name", ["entries", "blocks"])
def test_a_link_in_the_place_of_a_file_is_not_followed(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill_path(tmp_path)
    target = tmp_path / "precious"
    target.write_text("mine")
    file = folder(tmp_path) / name
    file.unlink()
    file.symlink_to(target)
    device = Device(layout())
    assert disk_store(device, device.layout, tmp_path, 1 << 20, "model", lambda: None) is None
    assert target.read_text() == "mine"
    (warning,) = warnings(caplog)
    assert str(file) in warning


def test_a_folder_whose_lock_is_a_link_is_not_ours(tmp_path: Path) -> None:
    fill_path(tmp_path)
    target, lock = tmp_path / "precious", folder(tmp_path) / "lock"
    target.write_text("mine")
    lock.unlink()
    lock.symlink_to(target)
    assert sound(tmp_path) == []
    assert len(list(tmp_path.glob("kv1-*"))) == 2
    assert target.read_text() == "mine"


def test_a_link_in_the_place_of_our_folder_is_not_followed(tmp_path: Path) -> None:
    fill_path(tmp_path / "path")
    ours = folder(tmp_path / "path")
    ours.rename(tmp_path / "elsewhere")
    ours.symlink_to(tmp_path / "elsewhere")
    with disk_rig(tmp_path / "path") as rig:
        assert rig.store.inventory() == []
        rig.stored(range(30))
    ours.unlink()
    assert sound(tmp_path / "path", 30) == [(0, number) for number in range(30)]
    assert sorted(file.name for file in (tmp_path / "elsewhere").iterdir()) == ["blocks", "entries", "lock"]
    assert folder(tmp_path / "path").name == ours.name.replace("-0", "-1")


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill_path(tmp_path)
    file = folder(tmp_path) / "blocks"
    file.unlink()
    os.mkfifo(file)
    device = Device(layout())
    assert disk_store(device, device.layout, tmp_path, 1 << 20, "model", lambda: None) is None
    assert "not a plain file" in warnings(caplog)[0]


def test_whatever_else_lies_in_the_path_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "kv1-folder").mkdir()
    (tmp_path / f"kv1-{'0' * 32}-0").symlink_to(tmp_path / "kv1-folder")
    fill_path(tmp_path, size_bytes=100_000)
    assert sound(tmp_path) == everything()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list((tmp_path / "kv1-folder").iterdir())


def test_nobody_else_can_read_prompts(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        fill_path(tmp_path / "new" / "path")
    finally:
        os.umask(previous)
    for entry in (tmp_path / "new").rglob("*"):
        expected = 0o700 if entry.is_dir() else 0o600
        assert stat.S_IMODE(entry.stat().st_mode) == expected, entry


# --- faults of the system ---------------------------------------------------------------------------------------------


def test_a_full_disk_warns_once_rests_and_recovers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, now = FaultyFiles(), [0.0]
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store._medium._clock = lambda: now[0]  # type: ignore[attr-defined]
        rig.store.inventory()
        rig.stored(range(3))
        files.blocks.error = DISK_FULL
        failed = rig.stored([5, 6])
        assert (failed.state, failed.num_moved) == (TransferState.FAILED, 0)
        assert "No space left" in failed.problem
        files.blocks.error = None
        assert "rests" in rig.stored([7]).problem
        assert rig.loaded(range(3)).state is TransferState.DONE
        now[0] = 61.0
        assert rig.stored(range(8)).state is TransferState.DONE
        rig.loaded(range(8))
        assert all(rig.right(range(8)))
    (warning,) = warnings(caplog)
    assert "answers are not affected" in warning
    with disk_rig(tmp_path) as rig:
        assert len(rig.store.inventory()) == 8


@pytest.mark.parametrize("name", ["entries", "blocks"])
def test_a_disk_that_cannot_be_written_is_no_tier(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        files.by_name[name].error = OSError(errno.EROFS, "Read-only file system")
        for number in range(20):
            assert rig.stored([number]).state is TransferState.FAILED
        assert rig.loaded([0]).state is TransferState.FAILED
        rig.store.remove([(0, record(0).block_hash)])
    assert len(warnings(caplog)) == 1


def test_a_disk_that_cannot_be_read_is_no_tier(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        rig.store.inventory()
        rig.stored(range(3))
        files.blocks.read_error = OSError(errno.EIO, "Input/output error")
        event = rig.loaded([0, 1])
        assert (event.state, event.num_moved) == (TransferState.FAILED, 0)
        assert event.lost == ((0, record(0).block_hash), (0, record(1).block_hash))
        assert rig.loaded([1]).state is TransferState.FAILED
        files.blocks.read_error = None
        assert rig.loaded([2]).state is TransferState.DONE
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("which", ["*", "entries", "blocks"])
def test_a_path_that_vanishes_is_no_tier(which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with disk_rig(tmp_path / "path") as rig:
        rig.store.inventory()
        rig.stored(range(3))
        for file in folder(tmp_path / "path").glob(which):
            file.unlink()
        assert "deleted" in rig.stored([4]).problem
        for number in range(5, 20):
            assert rig.stored([number]).state is TransferState.FAILED
        assert rig.loaded([0]).lost
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("place", ["file", "below a file"])
def test_a_path_that_is_no_folder_is_refused_at_start(place: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    device, path = Device(layout()), file if place == "file" else file / "below"
    with pytest.raises(ConfigError, match=re.escape(f"kv_disk_path='{path}': must be a folder")):
        disk_store(device, device.layout, path, 1 << 20, "model", lambda: None)
    assert file.read_text() == "mine"


def test_a_broken_disk_at_start_is_an_empty_tier(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill_path(tmp_path)
    files = FaultyFiles()
    with disk_rig(tmp_path, open_file=files) as rig:
        files.by_name["entries"].read_error = OSError(errno.EIO, "Input/output error")
        assert rig.store.inventory() == []
        assert rig.stored([9]).state is TransferState.FAILED
        assert rig.loaded([0]).state is TransferState.FAILED
    assert len(warnings(caplog)) == 1


def test_records_are_compared_whole() -> None:
    """What the tests above compare can differ."""
    assert record(1) != record(1, salt="a")
    assert isinstance(record(1), BlockRecord)
    assert record(1) != record(1, group=1)
