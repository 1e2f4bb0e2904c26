"""Properties run the same examples every time, and nothing is judged by the clock of a busy machine."""

import gc
import os
import signal

import pytest
from hypothesis import settings

from tests.effort import LONG

# Before NumPy is first imported: OpenBLAS threads that spin for each other take ten times as long on shared cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell without job control starts its background jobs with SIGINT ignored, and all their descendants inherit that:
# tests that press Ctrl-C, and the processes in which they press it, would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("octavo", derandomize=True, deadline=None)
settings.load_profile("octavo")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only long runs do."""
    left_out = [] if LONG else [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish() -> None:
    """All modules live to the end: no collection of garbage need walk them again."""
    gc.collect()
    gc.freeze()


MOST_WORKERS = 8
"""Each takes some 400 MB."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole suite runs on all cores; parts of it, which somebody names, in one process that starts at once.

    One worker more than there are cores: while a test waits for a time-out, or for a process to end, another can work.
    """
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS) if is_whole else 0
