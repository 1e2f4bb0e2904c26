"""Pausing, draining, aborting and looking up requests, over HTTP with a real engine and the stock client."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from octavo import AsyncLLM
from octavo.config import EngineConfig, ServerConfig
from tests.end_to_end.conftest import SETTINGS
from tests.server.conftest import wait_until
from tests.server.running import RunningServer, running_server
from tests.server.test_refusals import check_error

LONG: dict[str, Any] = {"prompt": "x", "max_tokens": 400, "temperature": 0, "extra_body": {"ignore_eos": True}}
SLOW: dict[str, Any] = SETTINGS | {"max_num_seqs": 2, "executor": "reference", "served_model_name": ("tiny",)}
"""An engine that takes its time, so that a test can step in."""
ADMIN = {"Authorization": "Bearer admin-key"}


@pytest.fixture(scope="module")
def server(tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    """A server with keys of two users and an admin's, and places for two requests."""

    async def start() -> AsyncLLM:
        return await AsyncLLM.start(
            EngineConfig.from_fields(
                {
                    "model": tiny_file,
                    **SETTINGS,
                    "max_num_seqs": 2,
                    "executor": "reference",
                    "served_model_name": ("tiny",),
                }
            )
        )

    config = ServerConfig(port=0, shutdown_timeout=5, api_key=("one", "two"), admin_key=("admin-key",))
    with running_server(start, config, stop_engine=AsyncLLM.shutdown) as running:
        yield running


@pytest.fixture
def client(server: RunningServer[AsyncLLM]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="one", max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture
def admin(server: RunningServer[AsyncLLM]) -> Iterator[httpx.Client]:
    """Speaks with the admin's key, and ends every pause behind it."""
    with httpx.Client(base_url=server.url, headers=ADMIN, timeout=60) as made:
        yield made
        assert made.post("/admin/resume").json() == {"paused": None}
        assert made.get("/ready").status_code == 200


def load(server: RunningServer[AsyncLLM]) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{server.url}/load", headers={"Authorization": "Bearer one"}).json()
    return answer


def user(server: RunningServer[AsyncLLM], key: str, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", **more.pop("headers", {})}
    return httpx.request(method, server.url + path, headers=headers, timeout=60, **more)


# ---- abort and ledgers


def test_an_aborted_stream_ends_with_that_reason_and_its_ledger_stays(
    server: RunningServer[AsyncLLM], client: openai.OpenAI
) -> None:
    stream = client.completions.create(model="tiny", stream=True, n=2, **LONG)
    first = next(stream)
    path = f"/v1/requests/{first.id}"
    live = user(server, "one", "GET", path).json()
    assert live["status"] == "live" and {choice["state"] for choice in live["choices"]} <= {"running", "waiting"}
    assert user(server, "two", "POST", "/v1/abort", json={"request_id": first.id}).json()["aborted"] == []
    check_error(user(server, "two", "GET", path), 404)
    answer = user(server, "one", "POST", "/v1/abort", json={"request_ids": [first.id, "unknown"]})
    assert answer.json() == {"object": "abort", "aborted": [first.id]}
    chunks = [first, *stream]
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    assert reasons == ["abort", "abort"]
    ended = user(server, "one", "GET", path).json()
    assert (ended["id"], ended["object"], ended["status"]) == (first.id, "request", "finished")
    assert [choice["finish_reason"] for choice in ended["choices"]] == ["abort", "abort"]
    assert 0 < ended["choices"][0]["output_tokens"] < 400
    assert ended["choices"][0]["prompt_tokens"] == live["choices"][0]["prompt_tokens"] > 0
    assert ended["choices"][0]["finished_s"] >= ended["choices"][0]["first_token_s"] > 0
    assert abs(ended["arrived_at"] - time.time()) < 60
    assert user(server, "one", "POST", "/v1/abort", json={"request_id": first.id}).json()["aborted"] == []
    wait_until(lambda: load(server)["num_free_blocks"] == load(server)["num_blocks"], "all blocks are free")


def test_a_whole_answer_that_is_aborted_comes_with_what_there_is(
    server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client
) -> None:
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(client.completions.create, model="tiny", extra_headers={"X-Request-Id": "my"}, **LONG)
        wait_until(lambda: load(server)["num_running"] == 1, "the request runs")
        admin.post("/admin/pause", json={"mode": "keep"})
        assert user(server, "one", "POST", "/v1/abort", json={"request_id": "my"}).json()["aborted"] != []
        answer = asking.result(60)
    (choice,) = answer.choices
    assert choice.finish_reason == "abort"
    assert answer.usage is not None and 0 <= answer.usage.completion_tokens < 400
    by_alias = user(server, "one", "GET", "/v1/requests/my").json()
    assert (by_alias["id"], by_alias["x_request_id"]) == (answer.id, "my")
    assert by_alias["choices"][0]["output_tokens"] == answer.usage.completion_tokens


MESSAGES = {"model": "tiny", "max_tokens": 400, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    "path, body",
    [("embeddings", {"model": "tiny", "input": "hello"}), ("messages", MESSAGES)],
    ids=lambda part: str(part)[:10],
)
def test_where_an_api_has_no_word_for_an_abort_the_request_fails(
    server: RunningServer[AsyncLLM], admin: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    admin.post("/admin/pause", json={"mode": "keep"})
    with ThreadPoolExecutor() as pool:
        headers = {"X-Request-Id": f"my-{path}"}
        asking = pool.submit(user, server, "one", "POST", f"/v1/{path}", json=body, headers=headers)
        wait_until(lambda: load(server)["num_waiting"] == 1, "the request waits")
        assert user(server, "one", "POST", "/v1/abort", json={"request_id": f"my-{path}"}).json()["aborted"] != []
        answer = asking.result(60)
    assert answer.status_code == 499 and "aborted" in answer.json()["error"]["message"]


def test_a_stream_of_messages_that_is_aborted_ends_with_an_error(
    server: RunningServer[AsyncLLM], admin: httpx.Client
) -> None:
    admin.post("/admin/pause", json={"mode": "keep"})
    with ThreadPoolExecutor() as pool:
        given = {"json": MESSAGES | {"stream": True}, "headers": {"X-Request-Id": "my-stream"}}
        asking = pool.submit(user, server, "one", "POST", "/v1/messages", **given)
        wait_until(lambda: load(server)["num_waiting"] == 1, "the request waits")
        user(server, "one", "POST", "/v1/abort", json={"request_id": "my-stream"})
        answer = asking.result(60)
    assert answer.text.split("\n\n")[-2].startswith("event: error\ndata: {") and "aborted" in answer.text


def test_ledgers_of_ended_answers_tell_why(server: RunningServer[AsyncLLM], client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=3, n=3, temperature=0
    )
    ledger = user(server, "one", "GET", f"/v1/requests/{answer.id}").json()
    assert len(ledger["choices"]) == 3
    assert all(choice["finish_reason"] in ("length", "stop") for choice in ledger["choices"])
    assert answer.usage is not None
    assert sum(choice["output_tokens"] for choice in ledger["choices"]) == answer.usage.completion_tokens
    assert "content" not in str(ledger) and "hello" not in str(ledger)


@pytest.mark.parametrize("body", [{}, {"request_ids": []}, {"request_ids": ["x"] * 1001}, {"request_id": ""}])
def test_an_abort_of_nothing_is_refused(server: RunningServer[AsyncLLM], body: dict[str, Any]) -> None:
    check_error(user(server, "one", "POST", "/v1/abort", json=body), 400)


# ---- pauses


def answers(client: openai.OpenAI, pool: ThreadPoolExecutor, count: int) -> list[Any]:
    """That many long requests, begun one after the other."""
    return [pool.submit(client.completions.create, model="tiny", **LONG) for _ in range(count)]


def test_pause_keep_freezes_and_changes_no_token(
    server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client
) -> None:
    expected = client.completions.create(model="tiny", **LONG).choices[0].text
    with ThreadPoolExecutor() as pool:
        asked = answers(client, pool, 1)
        wait_until(lambda: load(server)["num_running"] == 1, "it runs")
        paused = admin.post("/admin/pause", json={"mode": "keep"})
        assert paused.json() == {"paused": "keep", "settled": True, "aborted": 0}
        assert check_error(admin.get("/ready"), 503)["code"] == "paused"
        assert admin.get("/health").status_code == 200
        before = load(server)["counters"]["steps"]
        asked += answers(client, pool, 1)
        wait_until(lambda: load(server)["num_waiting"] == 1, "the second waits")
        assert load(server)["counters"]["steps"] == before and load(server)["paused"] == "keep"
        assert not any(future.done() for future in asked)
        assert admin.post("/admin/resume").json() == {"paused": None}
        assert admin.get("/ready").status_code == 200
        assert [future.result(60).choices[0].text for future in asked] == [expected, expected]


def test_pause_wait_answers_when_what_ran_has_ended(
    server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client
) -> None:
    with ThreadPoolExecutor() as pool:
        asked = answers(client, pool, 3)
        wait_until(lambda: load(server)["num_running"] == 2 and load(server)["num_waiting"] == 1, "two run, one waits")
        early = admin.post("/admin/pause", json={"mode": "wait", "timeout_s": 0}).json()
        assert early["paused"] == "wait"
        assert admin.post("/admin/pause", json={"mode": "wait"}).json()["settled"] is True
        wait_until(lambda: (load(server)["num_running"], load(server)["num_waiting"]) == (0, 1), "one waits")
        assert admin.post("/admin/reset_prefix_cache").json() == {"reset": True}
        wait_until(lambda: load(server)["num_cached_blocks"] == 0, "the load card follows")
        admin.post("/admin/resume")
        assert {future.result(60).choices[0].finish_reason for future in asked} == {"length"}


def test_pause_abort_ends_all_and_later_ones_wait(
    server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client
) -> None:
    with ThreadPoolExecutor() as pool:
        asked = answers(client, pool, 3)
        wait_until(lambda: load(server)["num_running"] == 2 and load(server)["num_waiting"] == 1, "two run, one waits")
        assert admin.post("/admin/pause").json() == {"paused": "abort", "settled": True, "aborted": 3}
        assert [future.result(60).choices[0].finish_reason for future in asked] == ["abort"] * 3
        late = answers(client, pool, 1)
        wait_until(lambda: load(server)["num_waiting"] == 1, "a later one waits")
        admin.post("/admin/resume")
        assert late[0].result(60).choices[0].finish_reason == "length"


def test_the_cache_is_in_use(server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client) -> None:
    with ThreadPoolExecutor() as pool:
        asked = answers(client, pool, 1)
        wait_until(lambda: load(server)["num_running"] == 1, "it runs")
        admin.post("/admin/pause", json={"mode": "keep"})
        assert check_error(admin.post("/admin/reset_prefix_cache"), 409)["code"] == "cache_in_use"
        admin.post("/admin/resume")
        assert asked[0].result(60).choices[0].finish_reason == "length"


# ---- drain


def test_a_drain_refuses_new_requests_and_waits_for_the_others(
    server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client
) -> None:
    with ThreadPoolExecutor() as pool:
        asked = answers(client, pool, 3)
        wait_until(lambda: load(server)["num_running"] == 2 and load(server)["num_waiting"] == 1, "two run, one waits")
        draining = pool.submit(admin.post, "/admin/drain", json={"timeout_s": 60})
        wait_until(lambda: load(server)["paused"] == "drain", "it drains")
        with pytest.raises(openai.APIStatusError) as refused:
            client.completions.create(model="tiny", **LONG)
        assert refused.value.status_code == 503 and refused.value.code == "draining"
        assert refused.value.response.headers["retry-after"]
        assert check_error(httpx.get(f"{server.url}/ready"), 503)["code"] == "draining"
        assert draining.result(60).json() == {"drained": True, "aborted": 0}
        assert {future.result(60).choices[0].finish_reason for future in asked} == {"length"}


def test_a_drain_aborts_those_that_are_late(
    server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client
) -> None:
    with ThreadPoolExecutor() as pool:
        asked = answers(client, pool, 3)
        wait_until(lambda: load(server)["num_running"] == 2, "two run")
        assert admin.post("/admin/drain", json={"timeout_s": 0}).json() == {"drained": True, "aborted": 3}
        assert {future.result(60).choices[0].finish_reason for future in asked} == {"abort"}
        assert (load(server)["num_running"], load(server)["num_waiting"]) == (0, 0)


# ---- who may


def test_who_is_there_is_told_to_admins_without_content(
    server: RunningServer[AsyncLLM], client: openai.OpenAI, admin: httpx.Client
) -> None:
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(client.completions.create, model="tiny", **(LONG | {"prompt": "very secret words"}))
        wait_until(lambda: load(server)["num_running"] == 1, "it runs")
        admin.post("/admin/pause", json={"mode": "keep"})
        listed = admin.get("/admin/requests")
        (entry,) = listed.json()["data"]
        assert (entry["status"], len(entry["tenant"]), entry["choices"][0]["state"]) == ("live", 32, "running")
        assert "secret" not in listed.text and "one" not in listed.text
        admin.post("/admin/resume")
        assert asked.result(60).id == entry["id"]
    assert admin.get("/admin/requests").json() == {"object": "list", "data": []}


ROUTES = ["/admin/pause", "/admin/resume", "/admin/drain", "/admin/reset_prefix_cache"]


@pytest.mark.parametrize("path", ROUTES)
def test_admin_routes_are_for_admins(server: RunningServer[AsyncLLM], path: str) -> None:
    check_error(httpx.post(server.url + path), 401)
    check_error(user(server, "one", "POST", path), 401)
    check_error(user(server, "one", "GET", "/admin/requests"), 401)


def test_without_an_admin_key_there_are_no_admin_routes(tiny: Any) -> None:
    for path in ROUTES:
        check_error(httpx.post(tiny.server.url + path, headers=ADMIN), 404)
    check_error(httpx.get(tiny.server.url + "/admin/requests", headers=ADMIN), 404)


@pytest.mark.parametrize("body", [{"mode": "stop"}, {"timeout_s": -1}, {"mode": "wait", "timeout_s": "x"}, {"way": 1}])
def test_a_strange_order_is_refused(server: RunningServer[AsyncLLM], body: dict[str, Any]) -> None:
    check_error(httpx.post(f"{server.url}/admin/pause", json=body, headers=ADMIN), 400)
    assert load(server)["paused"] is None


def test_a_pause_holds_while_its_client_is_gone(server: RunningServer[AsyncLLM], admin: httpx.Client) -> None:
    """It is the engine's state: whoever asked for it need not stay."""
    begun = threading.Event()

    def leave() -> None:
        begun.set()
        with httpx.Client(base_url=server.url, headers=ADMIN, timeout=60) as other:
            other.post("/admin/pause", json={"mode": "wait"})

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join(30)
    assert begun.is_set() and load(server)["paused"] == "wait"
