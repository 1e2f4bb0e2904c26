"""Blocks that are copied out and into other blocks hold the same state: attention gives the same bits on them."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import Bytes, KVMemory, ProgramExecutor
from octavo.execution.reference import ReferenceExecutor
from octavo.execution.weights import LoadedWeight, load_model
from octavo.kv.spec import KVDtype
from octavo.model.program import Program
from tests.execution.driver import Driver, Live, layout_for
from tests.execution.native.rig import ISAS, bits
from tests.execution.test_weights import open_tiny

TOKENS, BEFORE = 100, 90
FORMATS = [(16, dtype) for dtype in KVDtype] + [(4, KVDtype.FP16), (64, KVDtype.INT8)]
Model = tuple[Program, dict[str, LoadedWeight]]


class Executor(ProgramExecutor, KVMemory):
    """What both executors are."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Three groups, two with a window."""
    folder = tmp_path_factory.mktemp("gemma3")
    return load_model(open_tiny(folder, architecture="gemma3", window=24, window_period=3, layers=3))


def executors(model: Model, block_size: int, dtype: KVDtype) -> Iterator[Executor]:
    program, weights = model
    layout = layout_for(program, tokens=TOKENS, sequences=2, block_size=block_size, dtype=dtype)
    yield ReferenceExecutor(program, weights, layout)  # type: ignore[misc]
    for isa in ISAS:
        yield NativeExecutor(
            program, weights, layout, threads=2, isa=isa, max_tokens=TOKENS, max_rows=4, max_seqs=4,
            max_positions=TOKENS,
        )  # type: ignore[misc]  # fmt: skip


def names(live: Live) -> Iterator[tuple[int, int]]:
    """(group, index in the table) of all blocks."""
    return ((group, index) for group, table in enumerate(live.blocks) for index in range(len(table)))


def read(executor: Executor, live: Live) -> dict[tuple[int, int], Bytes]:
    out = {}
    for group, index in names(live):
        out[group, index] = np.full(executor.block_bytes(group), 0xA5, np.uint8)
        executor.read_block(group, live.blocks[group][index], out[group, index])
    return out


def write(executor: Executor, live: Live, blocks: dict[tuple[int, int], Bytes]) -> None:
    for (group, index), data in blocks.items():
        executor.write_block(group, live.blocks[group][index], data)


def prompt() -> list[int]:
    return np.random.default_rng(3).integers(8, 500, TOKENS).tolist()


def computed(driver: Driver) -> Live:
    live = driver.start(prompt())
    driver.step([(live, BEFORE)])
    return live


def rest(driver: Driver, live: Live) -> np.ndarray:
    return bits(np.concatenate([driver.step([(live, count)]) for count in (1, 1, TOKENS - BEFORE - 2)]))


@pytest.mark.parametrize(("block_size", "dtype"), FORMATS)
def test_attention_gives_equal_bits_on_copied_blocks(model: Model, block_size: int, dtype: KVDtype) -> None:
    for executor in executors(model, block_size, dtype):
        driver = Driver(executor)
        live, copy = computed(driver), driver.start(prompt())
        saved = read(executor, live)
        driver.batch([(copy, BEFORE)])  # hands out blocks without running anything
        copy.computed = BEFORE
        write(executor, copy, saved)
        assert all(set(a).isdisjoint(b) for a, b in zip(live.blocks, copy.blocks, strict=True))
        np.testing.assert_array_equal(rest(driver, copy), rest(driver, live))
        executor.close()


@pytest.mark.parametrize(("block_size", "dtype"), FORMATS)
def test_a_block_has_the_bytes_of_the_spec(model: Model, block_size: int, dtype: KVDtype) -> None:
    for executor in executors(model, block_size, dtype):
        expected = [group.bytes_per_block(block_size, dtype) for group in executor.layout.groups]
        assert [executor.block_bytes(group) for group in range(len(expected))] == expected
        executor.close()


@pytest.mark.parametrize(("block_size", "dtype"), FORMATS)
def test_native_blocks_are_the_same_bytes_on_every_instruction_set(
    model: Model, block_size: int, dtype: KVDtype
) -> None:
    _, *native = executors(model, block_size, dtype)
    first, *others = (read(executor, computed(Driver(executor))) for executor in native)
    for other in others:
        assert all(np.array_equal(other[name], first[name]) for name in first)
    for executor in native:
        executor.close()


def test_writing_touches_nothing_but_its_block(model: Model) -> None:
    for executor in executors(model, 16, KVDtype.INT8):
        driver = Driver(executor)
        live, other = computed(driver), driver.start(prompt())
        driver.batch([(other, TOKENS)])
        before = read(executor, live)
        write(executor, other, {name: np.full_like(data, 0xFF) for name, data in before.items()})
        after = read(executor, live)
        assert all(np.array_equal(after[name], before[name]) for name in before)
        executor.close()


def copy_to_and_fro(
    executor: Executor, block: int, data: Bytes, stop: threading.Event, rounds: threading.Semaphore, wrong: list[int]
) -> None:
    out = np.empty_like(data)
    while not stop.is_set():
        executor.write_block(0, block, data)
        executor.read_block(0, block, out)
        wrong += np.flatnonzero(out != data).tolist()
        rounds.release()


def test_blocks_are_copied_beside_a_running_step(model: Model) -> None:
    """A thread copies blocks to and fro as long as steps run; the steps do not notice, and the bytes stay right."""
    for executor in executors(model, 16, KVDtype.FP16):
        driver = Driver(executor)
        live = computed(driver)
        expected = rest(driver, live)
        live.computed = BEFORE
        spare = driver.free.pop()
        saved, stop, rounds = read(executor, live), threading.Event(), threading.Semaphore(0)

        wrong: list[int] = []
        task = (executor, spare, saved[0, 0], stop, rounds, wrong)
        thread = threading.Thread(target=copy_to_and_fro, args=task)
        thread.start()
        for _ in range(5):
            rounds.acquire()  # in a step and between steps
            np.testing.assert_array_equal(rest(driver, live), expected)
            live.computed = BEFORE
        stop.set()
        thread.join()
        assert not wrong
        executor.close()


def test_mistakes_are_named(model: Model) -> None:
    _, *native = executors(model, 16, KVDtype.FP16)
    executor = native[0]
    data = np.empty(executor.block_bytes(0), np.uint8)
    with pytest.raises(ValueError, match="block 1000000 of group 0: there are"):
        executor.read_block(0, 1_000_000, data)
    with pytest.raises(ValueError, match="of group 9: there are"):
        executor.write_block(9, 1, data)
    with pytest.raises(ValueError, match="out"):
        executor.read_block(0, 1, data[1:])
    for closed in native:
        closed.close()
    with pytest.raises(ValueError, match="closed"):
        executor.write_block(0, 1, data)
