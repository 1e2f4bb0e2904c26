"""/admin/profile of a server with work to do, and `octavo serve --profile`."""

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo import AsyncLLM
from octavo.config import EngineConfig, ServerConfig
from tests.end_to_end.conftest import SETTINGS
from tests.end_to_end.test_api_processes import family
from tests.server.conftest import wait_until
from tests.server.running import RunningServer, running_server
from tests.server.test_refusals import check_error
from tests.trace_format import checked

ADMIN = {"Authorization": "Bearer admin-key"}
SEEDED = {"prompt": "The quick brown", "max_tokens": 40, "temperature": 0.9, "seed": 7, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    async def start() -> AsyncLLM:
        named = {"model": tiny_file, **SETTINGS, "served_model_name": ("tiny",), "max_num_seqs": 4}
        return await AsyncLLM.start(EngineConfig.from_fields(named))

    config = ServerConfig(port=0, shutdown_timeout=5, admin_key=("admin-key",))
    with running_server(start, config, stop_engine=AsyncLLM.shutdown) as running:
        yield running


@pytest.fixture
def admin(server: RunningServer[AsyncLLM]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=ADMIN, timeout=60) as made:
        yield made


def complete(url: str) -> str:
    answer = httpx.post(f"{url}/v1/completions", json=SEEDED, timeout=60)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


@contextmanager
def load(url: str, clients: int = 3) -> Iterator[list[str]]:
    """Clients that ask the same over and over, for the length of the block; the answers, of which there is one when it
    begins."""
    answers: list[str] = []
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            answers.append(complete(url))

    with ThreadPoolExecutor(clients) as pool:
        asking: list[Future[None]] = [pool.submit(ask) for _ in range(clients)]
        try:
            wait_until(lambda: bool(answers), "an answer has come")
            yield answers
        finally:
            enough.set()
        for one in asking:
            one.result(60)


def test_a_trace_of_the_next_steps_under_load(server: RunningServer[AsyncLLM], admin: httpx.Client) -> None:
    with load(server.url) as answers:
        answer = admin.post("/admin/profile", json={"steps": 20})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert len(set(answers)) == 1, "a token changed"
    trace = checked(answer.text)
    assert trace.about["ended_by"] == "steps" and len(trace.steps) == trace.about["steps"] == 20
    assert trace.about["model"] == "tiny" and "cut" not in trace.about
    assert {"schedule", "update", "output"} <= {top.name for lane in trace.slices.values() for top in lane}
    assert len(trace.ops) > 20 * 10 and trace.requests()
    assert max(step.event["args"]["requests"] for step in trace.steps) > 1


def test_a_profile_may_begin_and_end_in_the_middle(server: RunningServer[AsyncLLM], admin: httpx.Client) -> None:
    with load(server.url) as answers:
        number = admin.post("/admin/profile/start").json()["profile"]
        check_error(admin.post("/admin/profile/start"), 409)
        check_error(admin.post("/admin/profile", json={"steps": 1}), 409)
        seen = len(answers)
        wait_until(lambda: len(answers) > seen + 4, "requests have run")
        answer = admin.post("/admin/profile/stop")
    trace = checked(answer.text)
    assert trace.about["ended_by"] == "stopped" and number >= 1
    states = [events[0]["args"]["state"] for events in trace.requests().values()]
    assert states.count("length") >= 3 and set(states) <= {"length", "running", "waiting"}
    assert len(set(answers)) == 1
    check_error(admin.post("/admin/profile/stop"), 409)


def test_two_at_a_time_are_a_conflict_and_one_may_follow_the_other(
    server: RunningServer[AsyncLLM], admin: httpx.Client
) -> None:
    with ThreadPoolExecutor() as pool:
        first = pool.submit(_profile_as_soon_as_possible, admin)
        wait_until(lambda: _conflicts(admin), "the first one runs")
        complete(server.url)
        trace = checked(first.result(60).text)
    assert len(trace.steps) == 3
    assert checked(admin.post("/admin/profile", json={"seconds": 0.05}).text).about["ended_by"] == "seconds"


def _profile_as_soon_as_possible(admin: httpx.Client) -> httpx.Response:
    while (answer := admin.post("/admin/profile", json={"steps": 3})).status_code == 409:
        pass
    return answer


def _conflicts(admin: httpx.Client) -> bool:
    answer = admin.post("/admin/profile", json={"seconds": 0.001})
    if answer.status_code == 409:
        assert answer.json()["error"]["code"] == "profile_conflict"
    return answer.status_code == 409


def test_a_client_that_leaves_ends_its_profile(server: RunningServer[AsyncLLM], admin: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        admin.post("/admin/profile", json={"seconds": 50}, timeout=0.3)
    wait_until(lambda: not _conflicts(admin), "the profile has ended")


@pytest.mark.parametrize(
    ("body", "field"),
    [({"steps": 0}, "steps"), ({"seconds": -1}, "seconds"), ({"max_events": 5}, "max_events"), ({"stepz": 1}, "stepz")],
)
def test_what_cannot_be_is_refused_by_name(admin: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = admin.post("/admin/profile", json=body)
    check_error(answer, 400)
    assert answer.json()["error"]["param"] == field


def test_only_an_admin_may(server: RunningServer[AsyncLLM]) -> None:
    for path in ("/admin/profile", "/admin/profile/start", "/admin/profile/stop"):
        check_error(httpx.post(server.url + path), 401)


def test_processes_share_the_profile_and_it_goes_into_a_folder(tiny_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    with family(tiny_file, "--admin-key", "admin-key", "--profile", str(folder), count=2) as server:
        first, second = server.callers
        first.json("POST", "/admin/profile/start", **ADMIN)
        assert second.status("POST", "/admin/profile/start", **ADMIN) == 409
        texts = {caller.json("POST", "/v1/completions", SEEDED)["choices"][0]["text"] for caller in (first, second)}
        told = second.json("POST", "/admin/profile/stop", **ADMIN)
    assert len(texts) == 1
    (file,) = folder.iterdir()
    assert told["file"] == str(file)
    trace = checked(file.read_text())
    assert trace.about == {key: value for key, value in told.items() if key != "file"}
    assert len(trace.requests()) == 2 and trace.ops


def test_a_server_writes_the_trace_of_its_life_when_it_is_told_to_end(tiny_file: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with family(tiny_file, "--profile", str(file), count=1) as server:
        complete(server.process.url)
        server.process.popen.send_signal(signal.SIGTERM)
        assert server.process.end()[0] == 0
    trace = checked(file.read_text())
    assert trace.about["ended_by"] == "closed"
    assert sum(step.event["args"]["tokens_out"] for step in trace.steps) == SEEDED["max_tokens"]
    assert json.loads(file.read_text())["otherData"]["steps"] == len(trace.steps)
