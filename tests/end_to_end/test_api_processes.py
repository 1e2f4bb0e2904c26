"""`octavo serve --api-server-count N`: one server, whichever of its processes answers."""

import http.client
import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest

from tests.end_to_end.test_serve_process import STEADY, Process, serve
from tests.server.conftest import wait_until

COUNT = 3
SEEDED = {"prompt": "The quick brown", "max_tokens": 24, "temperature": 0.9, "seed": 7, "ignore_eos": True}
LONG = {"prompt": "x", "max_tokens": 600, "ignore_eos": True, "temperature": 0}


class Caller(http.client.HTTPConnection):
    """A connection to one API process."""

    pid: int

    def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        """Sends a request; the answer may still be on its way."""
        content = None if body is None else json.dumps(body)
        self.request(method, path, content, {"Content-Type": "application/json", **headers})
        return self.getresponse()

    def status(self, method: str, path: str, **headers: str) -> int:
        """Of an answer that is of no other interest."""
        answer = self.ask(method, path, **headers)
        answer.read()
        return answer.status

    def json(self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        """The answer, which must be a good one."""
        answer = self.ask(method, path, body, **headers)
        content = answer.read()
        assert answer.status == 200, content
        return json.loads(content)


class Family:
    """The processes of a server, and a connection to each that speaks HTTP."""

    def __init__(self, process: Process, stack: ExitStack) -> None:
        self.process = process
        self.parent = psutil.Process(process.popen.pid)
        children = self.parent.children()
        self.core = next(child for child in children if "engine.process" in " ".join(child.cmdline()))
        self.apis = [self.parent, *(child for child in children if child != self.core)]
        self._stack = stack
        self.callers = self.connected()

    def connected(self) -> list[Caller]:
        """One connection to each API process, the first one's first."""
        caller_by_pid: dict[int, Caller] = {}
        for _ in range(300):
            caller = self._caller()
            caller_by_pid.setdefault(caller.pid, caller)
            if len(caller_by_pid) == len(self.apis):
                return [caller_by_pid[process.pid] for process in self.apis]
        raise AssertionError(f"connections only reach {list(caller_by_pid)} of {self.apis}")

    def _caller(self) -> Caller:
        caller = Caller(self.process.url.removeprefix("http://"), timeout=60)
        self._stack.callback(caller.close)
        caller.json("GET", "/health")
        port = caller.sock.getsockname()[1]
        (caller.pid,) = [
            api.pid
            for api in self.apis
            for connection in api.net_connections("tcp")
            if connection.raddr and connection.raddr.port == port
        ]
        return caller


@contextmanager
def family(file: str, *flags: str, count: int = 2) -> Iterator[Family]:
    with serve(file, "--api-server-count", str(count), *flags) as process, ExitStack() as stack:
        yield Family(process, stack)


@pytest.fixture(scope="module")
def shared(tiny_file: str) -> Iterator[Family]:
    with family(
        tiny_file,
        "--served-model-name",
        "tiny",
        "--api-key",
        "one",
        "--api-key",
        "two",
        "--open-metrics",
        "--seed",
        "11",
        *STEADY,
        count=COUNT,
    ) as made:
        yield made


ONE, TWO = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}


def streamed(answer: http.client.HTTPResponse) -> list[dict[str, Any]]:
    """All events of a stream that has ended as it should."""
    lines = [line.removeprefix(b"data: ") for line in answer.read().split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]", lines[-2:]
    return [json.loads(line) for line in lines[:-1]]


def test_all_processes_give_the_same_tokens(shared: Family) -> None:
    answers = [caller.json("POST", "/v1/completions", SEEDED, **ONE) for caller in shared.callers]
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    assert len({answer["id"] for answer in answers}) == COUNT
    assert len({answer["system_fingerprint"] for answer in answers}) == 1
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 24, "temperature": 1}
    answers = [caller.json("POST", "/v1/chat/completions", chat, **ONE) for caller in shared.callers]
    assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1


def test_streams_of_all_processes_run_beside_each_other(shared: Family) -> None:
    body = SEEDED | {"max_tokens": 200, "stream": True, "return_token_ids": True}
    answers = [caller.ask("POST", "/v1/completions", body, **ONE) for caller in shared.callers]
    tokens = [[i for event in streamed(answer) for i in event["choices"][0]["token_ids"]] for answer in answers]
    assert len(tokens[0]) == 200 and tokens == [tokens[0]] * COUNT


def counted(text: str) -> dict[str, float]:
    """Samples of what requests for completions have brought about, without times."""
    names = "request_success_total|request_prompt_tokens_count|request_generation_tokens_sum|generation_tokens_total"
    found = re.findall(rf"^(vllm:(?:{names}).*) (\S+)$", text, re.MULTILINE)
    return {sample: float(value) for sample, value in found}


def test_metrics_are_those_of_all_processes_whoever_is_asked(shared: Family) -> None:
    def metrics(caller: Caller) -> dict[str, float]:
        return counted(caller.ask("GET", "/metrics").read().decode())

    before = metrics(shared.callers[0])
    for caller in shared.callers:
        caller.json("POST", "/v1/completions", SEEDED, **ONE)
    after = [metrics(caller) for caller in shared.callers]
    assert after == [after[0]] * COUNT
    gained = {name: value - before[name] for name, value in after[0].items() if value != before[name]}
    assert sorted(gained.values()) == [COUNT, COUNT, COUNT * 24, COUNT * 24], gained


def test_a_session_is_visible_from_all_processes_to_its_key_only(shared: Family) -> None:
    first, *others = shared.callers
    body = {"session_id": "talk", "prompt": "hello " * 20}
    first.json("POST", "/v1/sessions", body, **ONE)
    for caller in others:
        assert [one["id"] for one in caller.json("GET", "/v1/sessions", **ONE)["data"]] == ["talk"]
        assert caller.json("GET", "/v1/sessions", **TWO)["data"] == []
    others[0].json("DELETE", "/v1/sessions/talk", **ONE)
    assert first.json("GET", "/v1/sessions", **ONE)["data"] == []


def test_any_process_tells_how_many_requests_all_have(shared: Family) -> None:
    others = shared.connected()
    body = LONG | {"stream": True, "n": 8}
    streams = [caller.ask("POST", "/v1/completions", body, **ONE) for caller in shared.callers]
    loads = [caller.json("GET", "/load", **ONE) for caller in others]
    assert [load["num_http_in_flight"] for load in loads] == [COUNT] * COUNT
    for answer in streams:
        assert streamed(answer)[-1]["choices"][0]["finish_reason"] == "length"
    assert shared.callers[0].json("GET", "/load", **ONE)["num_http_in_flight"] == 0


def test_sigterm_drains_all_processes_and_ends_with_0(tiny_file: str) -> None:
    with family(tiny_file, *STEADY) as server:
        streams = [caller.ask("POST", "/v1/completions", LONG | {"stream": True}) for caller in server.callers]
        for one in [*server.apis, server.core]:  # as a supervisor does that signals all of a service
            one.send_signal(signal.SIGTERM)
        for answer in streams:
            assert streamed(answer)[-1]["choices"][0]["finish_reason"] == "length"
        code, told = server.process.end()
        assert code == 0 and all("draining: 1 requests" in line for line in told.splitlines()), told
        assert not [one for one in [*server.apis, server.core] if one.is_running()]


def test_a_process_that_is_killed_ends_the_server_with_1_after_a_drain(tiny_file: str) -> None:
    with family(tiny_file, *STEADY) as server:
        streams = [caller.ask("POST", "/v1/completions", LONG | {"stream": True}) for caller in server.callers]
        server.apis[1].kill()
        assert streamed(streams[0])[-1]["choices"][0]["finish_reason"] == "length"
        code, errors = server.process.end()
        assert code == 1
        assert "API process 1 ended with exit code -9; the server drains and ends" in errors
        assert all("drain" in line for line in errors.splitlines()), errors
        assert not [one for one in [*server.apis, server.core] if one.is_running()]


@pytest.mark.slow
def test_a_killed_core_is_told_by_all_processes_and_ends_with_1(tiny_file: str) -> None:
    with family(tiny_file, *STEADY) as server:
        streams = [caller.ask("POST", "/v1/completions", LONG | {"stream": True}) for caller in server.callers]
        server.core.kill()
        for answer in streams:
            assert streamed(answer)[-1]["error"]["code"] == "engine_dead"
        assert [caller.status("GET", "/health") for caller in server.callers] == [503] * 2
        code, errors = server.process.end()
        assert code == 1
        assert "the engine died" in errors
        assert not [one for one in server.apis if one.is_running()]


def test_when_the_first_process_is_killed_all_others_end(tiny_file: str) -> None:
    with family(tiny_file) as server:
        rest = [*server.apis[1:], server.core]
        server.parent.kill()
        server.process.popen.wait(10)

        def all_gone() -> bool:
            return not [one for one in rest if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

        wait_until(all_gone, "all processes have ended")


def test_a_request_can_be_looked_up_and_aborted_through_any_process_by_its_key_only(shared: Family) -> None:
    first, second, third = shared.connected()
    body = LONG | {"stream": True, "n": 8}
    answer = shared.callers[0].ask("POST", "/v1/completions", body, **ONE, **{"X-Request-Id": "mine"})
    assert first.status("GET", "/v1/requests/mine", **TWO) == 404
    assert second.json("GET", "/v1/requests/mine", **ONE)["status"] == "live"
    order = {"request_id": "mine"}
    assert third.json("POST", "/v1/abort", order, **TWO)["aborted"] == []
    aborted = third.json("POST", "/v1/abort", order, **ONE)["aborted"]
    events = streamed(answer)
    assert aborted == [events[0]["id"]]
    assert [event["choices"][0]["finish_reason"] for event in events].count("abort") == 8
    assert second.json("GET", "/v1/requests/mine", **ONE)["status"] == "finished"


def test_a_stored_response_is_found_through_any_process_by_its_key_only(shared: Family) -> None:
    body = {"input": "hi", "max_output_tokens": 16, "store": True}
    made = shared.callers[0].json("POST", "/v1/responses", body, **ONE)
    for caller in shared.connected():
        assert caller.json("GET", f"/v1/responses/{made['id']}", **ONE)["output"] == made["output"]
        assert caller.status("GET", f"/v1/responses/{made['id']}", **TWO) == 404
