"""What a start says."""

import logging

import pytest

from octavo.engine.start_log import warn_of_threads


@pytest.mark.parametrize(("threads", "cores", "says"), [(200, 2, True), (3, 2, True), (2, 2, False), (1, 2, False)])
def test_more_threads_than_cores_are_told(
    caplog: pytest.LogCaptureFixture, threads: int, cores: int, says: bool
) -> None:
    with caplog.at_level(logging.WARNING, logger="octavo"):
        warn_of_threads(threads, cores)
    assert (f"threads={threads}, but this process may use {cores} cores" in caplog.text) is says
