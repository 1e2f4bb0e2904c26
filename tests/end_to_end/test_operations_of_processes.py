"""Aborts, ledgers, pauses and drains asked of another API process than the one that serves the request."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.end_to_end.test_api_processes import ONE, TWO, Caller, Family, family, streamed
from tests.server.conftest import wait_until

ADMIN = {"Authorization": "Bearer admin-key"}
LONG: dict[str, Any] = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "temperature": 0, "stream": True, "n": 2}


@pytest.fixture(scope="module")
def slow(tiny_file: str) -> Iterator[Family]:
    keys = ("--api-key", "one", "--api-key", "two", "--admin-key", "admin-key")
    with family(tiny_file, *keys, "--executor", "reference", "--max-num-seqs", "2") as made:
        yield made


def begun(caller: Caller) -> tuple[Any, dict[str, Any]]:
    """A stream and its first event."""
    answer = caller.ask("POST", "/v1/completions", LONG, **ONE, **{"X-Request-Id": "mine"})
    return answer, json.loads(answer.readline().removeprefix(b"data: "))


def test_any_process_knows_and_ends_a_request_of_the_key(slow: Family) -> None:
    here, there = slow.callers
    answer, first = begun(here)
    path = f"/v1/requests/{first['id']}"
    assert there.json("GET", path, **ONE)["status"] == "live"
    refused = there.ask("GET", path, **TWO)
    assert refused.status == 404 and refused.read()
    assert there.json("POST", "/v1/abort", {"request_id": "mine"}, **TWO)["aborted"] == []
    assert there.json("POST", "/v1/abort", {"request_id": "mine"}, **ONE)["aborted"] == [first["id"]]
    answer.readline()
    reasons = [event["choices"][0]["finish_reason"] for event in streamed(answer)]
    assert reasons.count("abort") == 2
    for caller in (here, there):
        ledger = caller.json("GET", path, **ONE)
        assert [choice["finish_reason"] for choice in ledger["choices"]] == ["abort", "abort"]


def test_a_pause_and_a_drain_hold_for_all_processes(slow: Family) -> None:
    here, there = slow.callers

    def status(caller: Caller) -> int:
        answer = caller.ask("GET", "/ready")
        answer.read()
        return answer.status

    assert there.json("POST", "/admin/pause", {"mode": "keep"}, **ADMIN)["paused"] == "keep"
    wait_until(lambda: [status(caller) for caller in slow.callers] == [503, 503], "none of them is ready")
    assert here.json("POST", "/admin/resume", {}, **ADMIN) == {"paused": None}
    wait_until(lambda: [status(caller) for caller in slow.callers] == [200, 200], "both are ready")
    answer, _ = begun(here)
    assert there.json("GET", "/admin/requests", **ADMIN)["data"][0]["x_request_id"] == "mine"
    assert there.json("POST", "/admin/drain", {"timeout_s": 0}, **ADMIN) == {"drained": True, "aborted": 1}
    answer.readline()
    assert "abort" in [event["choices"][0]["finish_reason"] for event in streamed(answer)]
    refused = here.ask("POST", "/v1/completions", LONG, **ONE)
    assert refused.status == 503 and json.loads(refused.read())["error"]["code"] == "draining"
    there.json("POST", "/admin/resume", {}, **ADMIN)
    answer, first = begun(here)
    there.json("POST", "/v1/abort", {"request_id": first["id"]}, **ONE)
    answer.read()
