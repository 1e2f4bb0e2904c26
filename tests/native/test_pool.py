"""The thread pool: every chunk runs once, stages keep their order, forks and crowded cores do no harm."""

import subprocess
import sys
import threading
import time

import pytest

from octavo._native import ThreadPool

FORK_SCRIPT = """
import os
from octavo._native import ThreadPool
pool = ThreadPool(3)
pool.trace_run([16] * 20)
child = os.fork()
ran_by = pool.trace_run([16] * 200)
assert all(thread >= 0 for stage in ran_by for thread in stage)
del pool
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("both ran")
"""


def runs_once(ran_by: list[list[int]], threads: int) -> bool:
    return all(0 <= thread < threads for stage in ran_by for thread in stage)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_chunk_of_every_stage_runs_exactly_once(threads: int) -> None:
    pool = ThreadPool(threads)
    sizes = [1, 0, 5, 64, 0, 0, 3, 1000, 1, 1, 2, 0] * 20
    ran_by = pool.trace_run(sizes)
    assert [len(stage) for stage in ran_by] == sizes
    assert runs_once(ran_by, threads)


def test_a_run_of_nothing_returns() -> None:
    pool = ThreadPool(2)
    assert pool.trace_run([]) == []
    assert pool.trace_run([0, 0]) == [[], []]


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_a_thread_count_out_of_range_is_named(threads: int) -> None:
    with pytest.raises(ValueError, match=f"threads={threads}: must be in"):
        ThreadPool(threads)


def test_more_threads_than_cores_stay_within_a_bounded_time() -> None:
    """No stage waits for all threads to come by: 4,000 stages on 16 threads end long before a barrier's time slices."""
    pool = ThreadPool(16)
    started = time.monotonic()
    for _ in range(20):
        assert runs_once(pool.trace_run([4] * 200), 16)
    assert time.monotonic() - started < 20


def test_calls_from_several_threads_queue_up() -> None:
    pool = ThreadPool(3)
    outcomes: list[bool] = []

    def call_often() -> None:
        outcomes.extend(runs_once(pool.trace_run([7] * 50), 3) for _ in range(50))

    callers = [threading.Thread(target=call_often) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    assert outcomes == [True] * 200


def test_workers_that_went_to_sleep_come_back() -> None:
    pool = ThreadPool(2)
    pool.trace_run([8])
    threading.Event().wait(0.02)  # far beyond the time that idle workers stay awake
    helped = any(1 in stage for _ in range(200) for stage in pool.trace_run([64] * 50))
    assert helped, "the second thread never took a chunk again"


def test_a_forked_child_gets_its_own_workers() -> None:
    command = [sys.executable, "-c", FORK_SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "both ran\n", "")


def test_pools_come_and_go() -> None:
    for _ in range(50):
        ThreadPool(4).trace_run([16] * 3)
