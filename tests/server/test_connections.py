"""Clients that are slow, many, or speak no HTTP: each has a bound, and others do not feel it."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.server.http_protocol import MAX_HEAD_BYTES, PIECE_BYTES, connection_limits
from tests.server.conftest import FakeServer, fake, wait_until
from tests.server.running import running_server


@pytest.fixture(scope="module")
def impatient() -> Iterator[FakeServer]:
    """Gives a client a quarter of a second, and has room for four connections."""
    with running_server(fake, ServerConfig(port=0, receive_timeout=0.25, max_connections=4)) as running:
        yield running


def connect(server: FakeServer, sent: bytes = b"") -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(sent)
    return connection


def everything(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    parts = []
    with connection:
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def error_code(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]["code"]


LONG = MAX_HEAD_BYTES + PIECE_BYTES
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", HEAD], ids=["none", "G", "GET", "POST"])
def test_half_a_head(impatient: FakeServer, sent: bytes) -> None:
    assert error_code(everything(connect(impatient, sent))) == (408, "request_timeout")


def test_half_a_body(impatient: FakeServer) -> None:
    assert error_code(everything(connect(impatient, HEAD + b"\r\n" + b'{"prompt"'))) == (408, "request_timeout")
    assert not impatient.engine.live


def test_a_head_that_drips(impatient: FakeServer) -> None:
    """The time is for the whole head, not from byte to byte."""
    with connect(impatient, b"GET / HTTP/1.1\r\n") as connection:
        connection.settimeout(0.01)
        answer = b""
        for number in range(1000):
            try:
                answer += connection.recv(4096)
                break
            except TimeoutError:
                connection.sendall(b"X-%d: y\r\n" % number)
        connection.settimeout(20)
        assert b" 408 " in answer


def test_a_body_that_nobody_reads_ends_too(impatient: FakeServer) -> None:
    """The answer, 404, is there at once; the client goes on sending what it announced."""
    head = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    with connect(impatient, head) as connection:
        assert b" 404 " in connection.recv(65536)
        connection.settimeout(0.01)
        closed = False
        for _ in range(2000):
            try:
                connection.sendall(b"x")
                closed = connection.recv(4096) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed


PROBE = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def test_half_a_head_behind_a_request(impatient: FakeServer) -> None:
    """What came in one piece with a request counts as begun when that is answered."""
    answers = everything(connect(impatient, PROBE + b"GET /health HT"))
    assert answers.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 408 " in answers


def test_the_second_of_two_answers_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection with a request on it is not idle, also if that request came before the first was answered."""
    monkeypatch.setattr("octavo.server.http_server.KEEP_ALIVE_S", 0)
    body = b'{"prompt": "x", "max_tokens": 50, "stream": true}'
    post = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with running_server(fake) as running:
        answers = everything(connect(running, PROBE + post))
    assert answers.count(b"HTTP/1.1 200 ") == 2
    assert b"[DONE]" in answers


def test_slow_clients_do_not_hold_up_others(impatient: FakeServer) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connect(impatient, HEAD))
        assert httpx.post(f"{impatient.url}/v1/completions", json={"prompt": "x"}).status_code == 200


def test_too_many_connections(impatient: FakeServer) -> None:
    limit = impatient.context.config.max_connections
    with running_server(fake, ServerConfig(port=0, max_connections=limit)) as running, ExitStack() as stack:
        held = [stack.enter_context(connect(running)) for _ in range(limit)]
        assert error_code(everything(connect(running))) == (503, "too_many_connections")
        held.pop().close()
        wait_until(lambda: b" 200 " in ask(running), "a place is free")


def ask(server: FakeServer) -> bytes:
    try:
        return everything(connect(server, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x04\x95" + b"\x00" * 50 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * LONG + b"\r\n\r\n",
        b"GET /" + b"y" * LONG + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * (LONG // 6) + b"\r\n",
    ],
    ids=[
        "tls",
        "colon",
        "host",
        "pickle",
        "negative",
        "two lengths",
        "nul",
        "long header",
        "long path",
        "many headers",
    ],
)
def test_what_is_no_http(impatient: FakeServer, sent: bytes) -> None:
    answer = b""
    try:
        answer = everything(connect(impatient, sent))
    except ConnectionError:
        assert len(sent) > MAX_HEAD_BYTES, "closed with bytes unread"
    if answer:
        assert error_code(answer) == (400, "invalid_http")
    assert httpx.get(f"{impatient.url}/health").status_code == 200


@pytest.mark.parametrize("ends", [b"0\r\n\r\n", b"zz\r\n"])
def test_a_body_in_chunks(impatient: FakeServer, ends: bytes) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    body = b'{"prompt": "x"}'
    answer = everything(connect(impatient, head + b"%x\r\n%b\r\n" % (len(body), body) + ends))
    if ends[:1] == b"0":
        assert b" 200 " in answer
    else:
        assert error_code(answer) == (400, "invalid_http") and b"chunks" in answer


def test_connections_follow_the_files_that_may_be_open() -> None:
    import resource

    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 128 <= connection_limits(ServerConfig()).max_connections < descriptors
    assert connection_limits(ServerConfig(max_connections=7)).max_connections == 7
