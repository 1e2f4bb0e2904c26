"""Blocks of real attention through real stores: a sequence goes on in another executor with the same bits."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from octavo.kv.record import BlockRecord, Tier
from octavo.kv.spec import KVDtype
from octavo.kv.transfer import Direction, TransferState
from tests.execution.driver import Driver, Live
from tests.execution.kv_store.rig import Device, Rig, disk_store, host_store
from tests.execution.test_kv_memory import BEFORE, Executor, Model, executors, model, prompt, rest

__all__ = ["model"]
BLOCK_SIZE = 16
NUM_FULL = BEFORE // BLOCK_SIZE


def record(group: int, index: int) -> BlockRecord:
    tokens = prompt()[index * BLOCK_SIZE :][:BLOCK_SIZE]
    name = sha256(f"{group}, {index}".encode()).digest()
    return BlockRecord(group=group, block_hash=name, parent_hash=None, token_ids=tuple(tokens))


def computed(driver: Driver) -> Live:
    """Full blocks in one step, the others in another: the reference executor's bits depend on where a prompt is cut."""
    live = driver.start(prompt())
    for count in (NUM_FULL * BLOCK_SIZE, BEFORE % BLOCK_SIZE):
        driver.step([(live, count)])
    return live


def moves(live: Live) -> list[tuple[int, BlockRecord]]:
    """All full blocks of a sequence."""
    return [
        (table[index], record(group, index)) for group, table in enumerate(live.blocks) for index in range(NUM_FULL)
    ]


@contextmanager
def stores(tier: Tier, executor: Executor, path: Path) -> Iterator[Rig]:
    rig = Rig(Device(executor.layout))
    if tier is Tier.HOST:
        rig.store = host_store(executor, executor.layout, 1 << 22, rig.notify)
    else:
        store = disk_store(executor, executor.layout, path, 1 << 22, "tiny", rig.notify)
        assert store is not None
        rig.store = store
    yield rig
    rig.store.close()


def go_on(driver: Driver, rig: Rig) -> np.ndarray:
    """A sequence whose full blocks are loaded into fresh blocks and whose other tokens are computed."""
    live = driver.start(prompt())
    driver.batch([(live, BEFORE)])  # hands out blocks without running anything
    assert rig.run(Direction.LOAD, moves(live)).state is TransferState.DONE
    live.computed = NUM_FULL * BLOCK_SIZE
    driver.step([(live, BEFORE - live.computed)])
    return rest(driver, live)


@pytest.mark.parametrize("dtype", KVDtype)
def test_a_sequence_goes_on_from_host_memory_with_the_same_bits(model: Model, dtype: KVDtype, tmp_path: Path) -> None:
    for executor in executors(model, BLOCK_SIZE, dtype):
        driver = Driver(executor)
        with stores(Tier.HOST, executor, tmp_path) as rig:
            live = computed(driver)
            assert rig.run(Direction.STORE, moves(live)).state is TransferState.DONE
            np.testing.assert_array_equal(go_on(driver, rig), rest(driver, live))
        executor.close()


@pytest.mark.parametrize("dtype", KVDtype)
def test_a_sequence_goes_on_from_disk_after_a_restart_with_the_same_bits(
    model: Model,
    dtype: KVDtype,
    tmp_path: Path,
) -> None:
    """Each native executor goes on from what the first has stored: another instruction set is no other numerics."""
    reference, *natives = executors(model, BLOCK_SIZE, dtype)
    for kind, members in (("reference", [reference, reference]), ("native", natives)):
        path, first = tmp_path / kind, Driver(members[0], seed=1)
        live = computed(first)
        with stores(Tier.DISK, members[0], path) as rig:
            rig.store.inventory()
            assert rig.run(Direction.STORE, moves(live)).state is TransferState.DONE
        expected = rest(first, live)
        first.finish(live)
        for executor in members:
            with stores(Tier.DISK, executor, path) as rig:
                assert len(rig.store.inventory()) == NUM_FULL * len(executor.layout.groups)
                np.testing.assert_array_equal(go_on(Driver(executor, seed=2), rig), expected)
    for executor in (reference, *natives):
        executor.close()
