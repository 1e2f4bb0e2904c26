"""Disconnects, drains, and the death of the engine."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.request.control import EngineLoad
from octavo.server.app import build_context
from octavo.server.errors import shutting_down
from octavo.server.http_server import HttpServer
from octavo.server.listener import bind
from octavo.server.state import ServerState
from tests.server.conftest import FakeServer, fake, wait_until
from tests.server.running import running_server
from tests.server.test_refusals import check_error

ENDLESS = {"prompt": "endless", "max_tokens": 500, "ignore_eos": True}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with running_server(fake) as running:
        running.in_loop(running.engine.gate.clear)
        yield running
        if running.ended_well is None:
            running.in_loop(running.engine.gate.set)


def send_raw(url: str, body: dict[str, Any], *headers: str, missing: int = 0) -> socket.socket:
    """Sends a request over a bare socket, all but the last `missing` bytes, and leaves the connection open."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    payload = json.dumps(body).encode()
    lines = ("POST /v1/completions HTTP/1.1", "Host: x", f"Content-Length: {len(payload)}", *headers, "", "")
    connection.sendall("\r\n".join(lines).encode() + payload[: len(payload) - missing])
    return connection


@pytest.mark.parametrize("extra", [{}, {"n": 3}, {"prompt": ["a", "b", "c"]}], ids=["one", "n", "list"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_generation(server: FakeServer, stream: bool, extra: dict[str, Any]) -> None:
    connection = send_raw(server.url, ENDLESS | extra | {"stream": stream})
    count = 1 if not extra else 3
    wait_until(lambda: len(server.engine.live) == count, "the request runs")
    if stream:
        assert connection.recv(64)
    connection.close()
    wait_until(lambda: not server.engine.live, "the generation ended")
    wait_until(lambda: server.context.state.in_flight == 0, "the request is forgotten")
    generated = server.engine.num_generated
    server.in_loop(server.engine.gate.set)
    httpx.get(f"{server.url}/load")
    assert server.engine.num_generated == generated


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_a_connection_used_before(server: FakeServer, stream: bool) -> None:
    """The second request of a connection ends with it as the first would."""
    server.in_loop(server.engine.gate.set)
    connection = send_raw(server.url, {"prompt": "x", "max_tokens": 2})
    answer = b""
    while b'"usage"' not in answer or not answer.endswith(b"}"):
        answer += connection.recv(10_000)
    server.in_loop(server.engine.gate.clear)
    payload = json.dumps(ENDLESS | {"stream": stream}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n"
    connection.sendall(head.encode() + payload)
    wait_until(lambda: len(server.engine.live) == 1, "the second request runs")
    connection.close()
    wait_until(lambda: not server.engine.live, "the generation ended")
    wait_until(lambda: server.context.state.in_flight == 0, "the request is forgotten")


def test_many_aborted_streams_leave_nothing_behind(server: FakeServer) -> None:
    server.in_loop(server.engine.gate.set)
    for number in range(60):
        connection = send_raw(server.url, ENDLESS | {"stream": True, "n": 1 + number % 3})
        if number % 2:
            connection.recv(100 * (1 + number % 7))
        connection.close()
    wait_until(lambda: not server.engine.live and server.context.state.in_flight == 0, "all ended")
    assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "max_tokens": 3}).status_code == 200


def test_the_openai_client_can_close_a_stream(server: FakeServer, client: openai.OpenAI) -> None:
    stream = client.completions.create(model="fake", prompt="endless", max_tokens=500, stream=True)
    next(iter(stream))
    assert server.engine.live
    stream.close()
    wait_until(lambda: not server.engine.live, "the generation ended")


def start_stop(server: FakeServer) -> None:
    server.in_loop(server.http.stop)
    wait_until(lambda: httpx.get(f"{server.url}/ready").status_code == 503, "the server drains")


def test_a_drain_lets_requests_finish_and_refuses_new_ones(server: FakeServer) -> None:
    lines: list[str] = []

    def read() -> None:
        with httpx.stream(
            "POST", f"{server.url}/v1/completions", json=ENDLESS | {"stream": True}, timeout=30
        ) as answer:
            lines.extend(line for line in answer.iter_lines() if line)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: len(server.engine.live) == 1, "the request runs")
    start_stop(server)
    for stream in (True, False):
        refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "stream": stream})
        assert check_error(refused, 503)["code"] == "shutting_down"
        assert refused.headers["retry-after"]
    assert httpx.get(f"{server.url}/health").status_code == 200
    server.in_loop(server.engine.gate.set)
    reader.join(timeout=30)
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    wait_until(lambda: server.ended_well is True, "the server stopped")


@pytest.mark.parametrize("patience", [0.0, 0.2])
def test_after_its_patience_a_drain_tells_clients(patience: float) -> None:
    with running_server(fake, ServerConfig(port=0, shutdown_timeout=patience)) as server:
        server.in_loop(server.engine.gate.clear)
        lines: list[str] = []
        answers: list[httpx.Response] = []

        def read() -> None:
            with httpx.stream("POST", f"{server.url}/v1/completions", json=ENDLESS | {"stream": True}) as answer:
                lines.extend(line for line in answer.iter_lines() if line)

        def wait() -> None:
            answers.append(httpx.post(f"{server.url}/v1/completions", json=ENDLESS))

        threads = [threading.Thread(target=work) for work in (read, wait)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(server.engine.live) == 2, "the requests run")
        server.in_loop(server.http.stop)
        for thread in threads:
            thread.join(timeout=20)
        check_error(answers[0], 503)
        assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert lines[-1] == "data: [DONE]"
        assert not server.engine.live
        wait_until(lambda: server.ended_well is True, "the server stopped")


def test_a_second_signal_ends_the_drain(server: FakeServer) -> None:
    connection = send_raw(server.url, ENDLESS)
    wait_until(lambda: len(server.engine.live) == 1, "the request runs")
    start_stop(server)
    assert server.ended_well is None
    server.in_loop(server.http.stop)
    wait_until(lambda: server.ended_well is True, "the server stopped")
    assert b" 503 " in connection.recv(4096)
    connection.close()


def test_the_engine_dies(server: FakeServer) -> None:
    lines: list[str] = []
    answers: list[httpx.Response] = []

    def read() -> None:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=ENDLESS | {"stream": True}) as answer:
            lines.extend(line for line in answer.iter_lines() if line)

    def wait() -> None:
        answers.append(httpx.post(f"{server.url}/v1/completions", json=ENDLESS))

    threads = [threading.Thread(target=work) for work in (read, wait)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(server.engine.live) == 2, "the requests run")
    server.in_loop(lambda: server.engine.kill("killed by the test"))
    for thread in threads:
        thread.join(timeout=20)
    assert check_error(answers[0], 503)["code"] == "engine_dead"
    assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "engine_dead"
    check_error(httpx.get(f"{server.url}/health"), 503)
    check_error(httpx.get(f"{server.url}/ready"), 503)
    check_error(httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"}), 503)
    wait_until(lambda: server.ended_well is False, "the server went down")


def test_a_taken_port_and_a_strange_host_say_so() -> None:
    with bind(ServerConfig(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port={port}: another program listens there"):
            bind(ServerConfig(port=port))
    with pytest.raises(ConfigError, match=r"host='no\.such\.host\.invalid'"):
        bind(ServerConfig(host="no.such.host.invalid", port=0))
    with pytest.raises(ConfigError, match=r"host='192\.0\.2\.1': cannot be listened on"):
        bind(ServerConfig(host="192.0.2.1", port=0))


def test_ipv6() -> None:
    with running_server(fake, ServerConfig(host="::1", port=0)) as server:
        assert server.url.startswith("http://[::1]:")
        assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize("signals", [1, 2])
def test_a_drain_does_not_wait_for_an_engine_that_hangs(signals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.server.state.FAREWELL_S", 0.1)
    patience = 30.0 if signals == 2 else 0.1

    async def drain() -> None:
        state = ServerState()
        with state.admitted():  # the request never gives back what it holds
            draining = asyncio.create_task(state.drain(patience))
            await asyncio.sleep(0)
            if signals == 2:
                state.cut_off_now(shutting_down())
            await draining
        assert state.in_flight == 0

    asyncio.run(asyncio.wait_for(drain(), 10))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
def test_a_request_that_does_not_arrive_in_full_holds_up_no_drain(
    server: FakeServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client is told at once, and nothing has to be broken off."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection, httpx.Client(base_url=server.url) as other:
        running = send_raw(server.url, ENDLESS)
        wait_until(lambda: len(server.engine.live) == 1, "another request runs")
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + b'{"prompt": ')
        wait_until(lambda: other.get("/load").json()["num_http_in_flight"] >= 1, "the server listens")
        server.in_loop(server.http.stop)
        answer = b""
        while b'"code"' not in answer:
            answer += (part := connection.recv(10_000))
            assert part, answer
        assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"shutting_down"' in answer
        assert server.ended_well is None  # the other one may still finish
        server.in_loop(server.engine.gate.set)
        running.close()
    wait_until(lambda: server.ended_well is True, "the server has ended")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_end_that_comes_as_the_engine_answers() -> None:
    """The server ends also where it is told to in the very turn of the loop in which a ping of the engine comes back.
    Here it ends because its ready line cannot be written, as on a full disk."""

    async def run() -> None:
        engine = await fake()
        answered = asyncio.Event()
        load = engine.load

        async def slow_load() -> EngineLoad:
            await answered.wait()
            return await load()

        def announce(_: str) -> None:
            answered.set()
            raise OSError(28, "No space left on device")

        engine.load = slow_load  # type: ignore[method-assign]
        config = ServerConfig(port=0)
        async with asyncio.timeout(20):
            await HttpServer(build_context(engine, config)).run(bind(config), announce)

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(run())
