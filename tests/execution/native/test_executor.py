"""The native executor's edges: limits, memory, copies of blocks, further rows, closing, forks."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from octavo import _native
from octavo.errors import OutOfMemoryError
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import ProgramExecutor, StepBatch
from octavo.execution.weights import load_model
from octavo.request.profile import OpInfo
from octavo.scheduling.plan import BlockCopy
from tests.execution.driver import Driver, layout_for
from tests.execution.native.rig import AttentionCase, AttentionRig, bits
from tests.execution.test_weights import open_tiny

MAX_TOKENS, MAX_ROWS, MAX_SEQS, MAX_POSITIONS = 64, 4, 3, 48


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tiny_executor(tmp_path))


def tiny_executor(folder: Path, **changes: object) -> NativeExecutor:
    program, weights = load_model(open_tiny(folder))
    arguments: dict[str, object] = {
        "threads": 2, "isa": "auto", "max_tokens": MAX_TOKENS, "max_rows": MAX_ROWS, "max_seqs": MAX_SEQS,
        "max_positions": MAX_POSITIONS,
    }  # fmt: skip
    layout = changes.pop("layout", layout_for(program, tokens=MAX_POSITIONS, sequences=MAX_SEQS + 1))
    return NativeExecutor(program, weights, layout, **(arguments | changes))  # type: ignore[arg-type]


def some_batch(driver: Driver) -> StepBatch:
    return driver.batch([(driver.start(range(20)), 20), (driver.start(range(5)), 5)])


def test_it_is_a_program_executor(driver: Driver) -> None:
    executor: ProgramExecutor = driver.executor
    assert executor.max_rows == MAX_ROWS
    assert executor.run(some_batch(driver)).shape == (2, 512)


@pytest.mark.parametrize(
    ("field", "place", "value", "problem"),
    [
        ("token_ids", 3, 512, r"token_ids\[3\] = 512: must be in \[0, 512\)"),
        ("token_ids", 0, -1, r"token_ids\[0\] = -1"),
        ("positions", 7, 9, "sequence 0: positions must be consecutive"),
        ("positions", 24, 48, r"positions\[24\] = 48: must be in \[0, 48\)"),
        ("context_lens", 1, 6, "sequence 1: positions must end at context_lens - 1 = 5"),
        ("seq_starts", 1, 26, "sequence 0: seq_starts must ascend"),
        ("seq_starts", 2, 24, "seq_starts must end with the number of tokens"),
        ("slot_mapping", (0, 2), -5, r"slot_mapping\[2\] = -5"),
        ("block_tables", (0, 1, 0), 999, r"block_tables\[\d+\] = 999"),
        ("logit_rows", 1, 25, r"logit_rows\[1\] = 25: must be in \[0, 25\)"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(
    driver: Driver, field: str, place: object, value: int, problem: str
) -> None:
    batch = some_batch(driver)
    getattr(batch, field)[place] = value
    with pytest.raises(ValueError, match=problem):
        driver.executor.run(batch)
    assert np.isfinite(driver.executor.run(some_batch(driver))).all(), "the executor is still usable"


def test_a_batch_beyond_the_limits_is_refused(driver: Driver) -> None:
    with pytest.raises(ValueError, match="a step of 80 tokens exceeds max_tokens=64; schedule fewer"):
        driver.step([(driver.start(range(40)), 40), (driver.start(range(40)), 40)])
    with pytest.raises(ValueError, match="a step of 4 seqs exceeds max_seqs=3"):
        driver.step([(driver.start([1]), 1) for _ in range(4)])
    driver.free = list(range(1, driver.executor.layout.num_blocks))
    batch = some_batch(driver)
    batch.logit_rows = np.arange(5, dtype=np.int32)
    with pytest.raises(ValueError, match="a step of 5 rows exceeds max_rows=4"):
        driver.executor.run(batch)


def test_arrays_of_unequal_length_are_refused(driver: Driver) -> None:
    batch = some_batch(driver)
    with pytest.raises(ValueError, match="positions has 24 entries, expected 25"):
        driver.executor.run(replace(batch, positions=batch.positions[:-1]))
    with pytest.raises(ValueError, match="a context of 20 tokens needs more than 1 block table entries"):
        driver.executor.run(replace(batch, block_tables=np.ascontiguousarray(batch.block_tables[:, :, :1])))


def test_copied_blocks_continue_like_their_source(driver: Driver) -> None:
    a, b = driver.start(range(100, 130)), driver.start(range(100, 130))
    want = driver.step([(a, 30)])
    b.computed = 29
    batch = driver.batch([(b, 1)])
    batch.block_copies = [
        BlockCopy(group=0, source=source, target=target, num_tokens=count)
        for source, target, count in zip(a.blocks[0], b.blocks[0], (16, 13), strict=True)
    ]
    np.testing.assert_array_equal(bits(driver.executor.run(batch)), bits(want))
    with pytest.raises(ValueError, match="block copy 1 -> 999 of group 0: no such block"):
        driver.executor.run(replace(batch, block_copies=[BlockCopy(group=0, source=1, target=999, num_tokens=1)]))


def test_logits_of_further_rows(driver: Driver) -> None:
    token_ids = list(range(200, 240))
    batch = driver.batch([(driver.start(token_ids), 40)])
    last = driver.executor.run(batch).copy()
    every = np.concatenate(
        [driver.executor.logits(np.arange(i, i + 4, dtype=np.int32)).copy() for i in range(0, 40, 4)]
    )
    np.testing.assert_array_equal(bits(every[-1:]), bits(last))
    for i in (1, 17, 33):
        alone = driver.step([(driver.start(token_ids[: i + 1]), i + 1)])
        np.testing.assert_array_equal(bits(alone[0]), bits(every[i]))
        driver.free = list(range(1, driver.executor.layout.num_blocks))
    assert driver.executor.logits(np.zeros(0, np.int32)).shape == (0, 512)


def test_an_empty_selection_of_rows_still_fills_the_cache(driver: Driver) -> None:
    token_ids = list(range(30))
    want = driver.step([(driver.start(token_ids), 30)])
    live = driver.start(token_ids)
    batch = driver.batch([(live, 29)])
    assert driver.executor.run(replace(batch, logit_rows=np.zeros(0, np.int32))).shape == (0, 512)
    live.computed = 29
    np.testing.assert_array_equal(bits(driver.step([(live, 1)])), bits(want))


def test_logits_are_a_view_that_outlives_the_executor(driver: Driver) -> None:
    logits = driver.executor.run(some_batch(driver))
    kept = logits.copy()
    assert not logits.flags.owndata
    driver.executor.close()
    np.testing.assert_array_equal(bits(logits), bits(kept))


def test_a_closed_executor_says_so(driver: Driver) -> None:
    batch = some_batch(driver)
    driver.executor.close()
    driver.executor.close()
    with pytest.raises(ValueError, match="closed"):
        driver.executor.run(batch)


def test_memory_beyond_the_system_is_refused_with_the_numbers() -> None:
    """2^26 blocks of 2 MiB: more than a process can address."""
    case = AttentionCase(lengths=(1,), heads=64, kv_heads=64, head_dim=256)
    with pytest.raises(OutOfMemoryError, match=r"KV blocks \(67108864 of 16 tokens\) need 131072\.00 GiB .* refused"):
        AttentionRig(case, num_blocks=1 << 26)


def test_bytes_held_are_reported(tmp_path: Path) -> None:
    executor = tiny_executor(tmp_path)
    layout, held = executor.layout, executor.num_bytes
    assert held["kv"] == layout.num_blocks * layout.bytes_per_block
    assert held["weights"] >= sum(4 * int(np.prod(w.shape)) for w in executor.program.weights.values())
    assert held["scratch"] > 0


def test_a_profile_times_every_stage_and_computes_the_step(driver: Driver) -> None:
    batch = some_batch(driver)
    times = driver.executor.profile(batch)
    profiled = driver.executor.output("logits").copy()
    np.testing.assert_array_equal(bits(profiled), bits(driver.executor.run(batch)))
    names = [name for name, _ in times]
    assert names[:3] == ["Embed+RmsNorm", "linear q+k+v", "Rope+Rope+CacheWrite"]
    assert names.count("attention") == 2
    assert names[-1] == "linear embed"
    assert all(seconds > 0 for _, seconds in times)


def test_times_of_ops_are_kept_only_while_they_are_wanted(driver: Driver) -> None:
    executor, batch = driver.executor, some_batch(driver)
    plain = bits(executor.run(batch).copy())
    assert executor.take_op_times().shape == (0, 5)
    executor.time_ops(on=True)
    since = _native.steady_ns()
    np.testing.assert_array_equal(bits(executor.run(batch).copy()), plain)
    executor.logits(np.zeros(2, np.int32))
    until = _native.steady_ns()
    executor.time_ops(on=False)
    executor.run(batch)
    times = executor.take_op_times()
    op, rows, begin, end, busy = times.T
    last = op.tolist().index(len(executor.ops) - 1) + 1
    assert [executor.ops[i].name for i in op[:last]] == [one.name for one in executor.ops[1:]]
    assert [executor.ops[i].name for i in op[last:]] == ["SelectRows+RmsNorm", "linear embed"]
    assert set(rows[: last - 2]) == {25} and set(rows[last - 2 :]) == {2}
    assert since <= begin[0] and end[-1] <= until
    assert (begin[1:last] == end[: last - 1]).all() and (begin < end).all()
    assert (busy > 0).all() and (busy <= 2 * (end - begin)).all()
    assert executor.take_op_times().shape == (0, 5)


def test_ops_are_told_with_their_layers_and_weights(driver: Driver) -> None:
    ops = driver.executor.ops
    assert ops[0] == OpInfo("block copies")
    assert [op.layer for op in ops if op.name == "attention"] == [0, 1]
    assert [op.layer for op in ops if op.name == "linear down"] == [0, 1]
    assert (ops[-1].layer, ops[-1].detail) == (None, "embed 512 x 64 F32")
    assert all(op.layer is not None for op in ops[1:-2])


def test_bad_settings_are_named(tmp_path: Path) -> None:
    for changes, problem in (
        ({"threads": 0}, "threads=0"),
        ({"isa": "avx9000"}, "isa='avx9000': must be 'auto', 'amx', 'avx512', 'avx2' or 'portable'"),
    ):
        with pytest.raises(ValueError, match=problem):
            tiny_executor(tmp_path, **changes)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_computes_the_same(driver: Driver) -> None:
    batch = some_batch(driver)
    want = bits(driver.executor.run(batch).copy())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # no pytest in here: report and leave
        same = np.array_equal(bits(driver.executor.run(batch)), want)
        os.write(writer, b"same" if same else b"different")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 16) == b"same"
    os.close(reader)
    os.close(writer)
    np.testing.assert_array_equal(bits(driver.executor.run(batch)), want)


def test_other_python_threads_run_during_a_step(driver: Driver) -> None:
    """The GIL is released: another thread makes progress while steps run back to back."""
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    batch = some_batch(driver)
    for _ in range(50):
        driver.executor.run(batch)
    done.set()
    thread.join(timeout=30)
    assert ticks > 50
