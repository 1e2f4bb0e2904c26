"""Random traffic against a model of what must lie where, and transfers that are cancelled at any moment."""

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kv.record import Tier
from octavo.kv.transfer import Direction, TransferState
from tests.execution.kv_store.rig import Rig, disk_rig, record, rig_of

NUMBERS = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), NUMBERS),
        st.tuples(st.just("remove"), NUMBERS),
        st.tuples(st.just("load"), NUMBERS),
        st.tuples(st.just("restart"), st.just([])),
    ),
    max_size=25,
)
ROOM = 6


def size_for(num_blocks: int) -> int:
    """A disk size that so many blocks fit, and not one more."""
    with tempfile.TemporaryDirectory() as path, disk_rig(Path(path)) as rig:
        return num_blocks * rig.store.num_bytes(record(0)) + 200


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_what_lies_on_disk_is_what_was_stored_and_not_removed(operations: list[tuple[str, list[int]]]) -> None:
    size, lying = size_for(ROOM), list[int]()  # in order of use
    with tempfile.TemporaryDirectory() as path, ExitStack() as stack:
        rig = stack.enter_context(disk_rig(Path(path), size_bytes=size))
        rig.store.inventory()
        for operation, numbers in [*operations, ("restart", [])]:
            if operation == "store":
                fits = len({*lying, *numbers}) <= ROOM
                assert (rig.stored(numbers).state is TransferState.DONE) == fits
                lying += [number for number in numbers if fits and number not in lying]
            elif operation == "remove":
                rig.store.remove([(0, record(number).block_hash) for number in numbers])
                rig.stored([])  # loads do not wait for removals; a store does
                lying = [number for number in lying if number not in numbers]
            elif operation == "load":
                first_lost = next((i for i, number in enumerate(numbers) if number not in lying), len(numbers))
                assert rig.loaded(numbers).num_moved == first_lost
                assert all(rig.right(numbers[:first_lost]))
                # Blocks behind a lost one are looked at, too.
                lying = [n for n in lying if n not in numbers] + [n for n in numbers if n in lying]
            else:
                rig.store.close()
                rig = stack.enter_context(disk_rig(Path(path), size_bytes=size))
                assert rig.store.inventory() == [record(number) for number in lying]


def free_slots(rig: Rig) -> int:
    return len(rig.store._medium._free)  # type: ignore[attr-defined]


@pytest.mark.parametrize("tier", [Tier.HOST, Tier.DISK])
def test_a_cancelled_transfer_touches_nothing_and_leaks_nothing(tier: Tier, tmp_path: Path) -> None:
    """Device blocks of cancelled loads are marked at once: a copy that came later would show."""
    chance = random.Random(5)
    with rig_of(tier, tmp_path) as rig:
        slots = free_slots(rig)
        ends: dict[int, TransferState] = {}
        lying: set[int] = set()
        for turn in range(150):
            numbers = range(8 * turn % 64, 8 * turn % 64 + 8)
            direction = chance.choice(list(Direction))
            moves = rig.fill(numbers, first_block=1 if direction is Direction.STORE else 33)
            transfer = rig.begin(direction, moves)
            if chance.random() < 0.7:
                for _ in range(chance.randrange(3000)):
                    pass  # a moment of any length: nothing that comes of it is told apart by time
                rig.store.cancel(transfer)
                for block, _ in moves:
                    rig.device.blocks[0][block] = 0xEE if direction is Direction.LOAD else 0
            event = rig.event(transfer)
            ends[transfer] = event.state
            if direction is Direction.STORE:
                lying |= set(numbers[: event.num_moved])
            elif event.problem == "cancelled":
                rig.loaded([])  # whatever hung in that thread has passed
                assert all((rig.device.blocks[0][block] == 0xEE).all() for block, _ in moves)
            lying -= {number for number in numbers if (0, record(number).block_hash) in event.lost}
            rig.seen.clear()
        assert set(ends.values()) == {TransferState.DONE, TransferState.FAILED}
        assert rig.run(Direction.STORE, []).state is TransferState.DONE  # the other thread has passed, too
        assert free_slots(rig) == slots - len(lying)
        for number in lying:
            assert rig.loaded([number]).state is TransferState.DONE
            assert rig.right([number]) == [True]
