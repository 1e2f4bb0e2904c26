"""Random disconnects and aborts under load leave nothing behind."""

import logging
from collections.abc import Iterator

import httpx
import psutil
import pytest

from octavo import AsyncLLM
from tests.effort import times
from tests.end_to_end.chaos import Complaints, Holdings, Traffic, at_rest, counted, settled
from tests.end_to_end.conftest import serving
from tests.server.running import RunningServer


@pytest.fixture(scope="module", params=[False, True], ids=["in turn", "ahead"])
def server(request: pytest.FixtureRequest, tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    """A server with few blocks and places, so that requests wait and are preempted; with tiers."""
    settings = {"num_kv_blocks": 120, "max_num_seqs": 8, "kv_host_memory_bytes": 2**20, "max_model_len": 700}
    with serving(tiny_file, **settings, async_scheduling=request.param) as running:
        yield running


def check(server: RunningServer[AsyncLLM], before: Holdings, complaints: Complaints) -> None:
    settled(server, before)
    ended = counted(server, "vllm:request_success_total")
    (asked,) = counted(server, "vllm:request_params_n_sum").values()
    rejected = counted(server, "octavo:requests_rejected_total")
    assert sum(ended.values()) == asked, (ended, asked, rejected)
    assert sum(value for labels, value in ended.items() if '"abort"' in labels) > 0
    assert sum(value for labels, value in ended.items() if '"error"' in labels) == 0
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting", "octavo:http_requests_in_flight"):
        assert set(counted(server, gauge).values()) <= {0.0, 1.0 if "http" in gauge else 0.0}
    assert complaints.heard == []


def test_random_disconnects_and_aborts_leave_nothing(
    server: RunningServer[AsyncLLM], caplog: pytest.LogCaptureFixture
) -> None:
    complaints = Complaints(server)
    Traffic(20, seed=1).run(server.url)  # whatever is made once
    httpx.get(f"{server.url}/metrics")
    before = at_rest(server)
    traffic = Traffic(200, seed=7)
    with caplog.at_level(logging.WARNING):
        traffic.run(server.url)
        check(server, before, complaints)
    assert traffic.ends["cut"] > 20 and traffic.ends["aborted"] > 3 and traffic.ends["nothing"] == 0, traffic.ends
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.slow
def test_many_more_and_memory_comes_back(server: RunningServer[AsyncLLM], caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(server)
    core = psutil.Process(server.engine.core_pid)
    Traffic(100, seed=2).run(server.url)
    before, used = at_rest(server), (psutil.Process().memory_info().rss, core.memory_info().rss)
    for round_ in range(2):
        Traffic(times(120), seed=10 + round_, at_one_time=48).run(server.url)
        check(server, before, complaints)
    now = (psutil.Process().memory_info().rss, core.memory_info().rss)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    grown = [(after - was) / 2**20 for was, after in zip(used, now, strict=True)]
    assert max(grown) < 20, f"MiB more than before in this process and in the core: {grown}"
