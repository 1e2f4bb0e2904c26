"""The access log: one line per request with what it came to, and nothing that it said."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.log import ACCESS
from tests.server.conftest import FakeServer, fake, wait_until
from tests.server.running import running_server

SECRET = "a very private matter"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    config = ServerConfig(port=0, shutdown_timeout=5, access_log=True, api_key=("sk-secret",))
    with running_server(fake, config) as running:
        yield running


@pytest.fixture
def lines(server: FakeServer, caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """Fields of the lines so far, in a list that grows."""
    found: list[dict[str, Any]] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(dict(record.fields))  # type: ignore[attr-defined]

    logger, listener = logging.getLogger(ACCESS), Listener()
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(listener)
    logger.setLevel(level)
    assert SECRET not in caplog.text and "sk-secret" not in caplog.text
    assert SECRET not in str(found) and "sk-secret" not in str(found)


@pytest.fixture
def http(server: FakeServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": "Bearer sk-secret"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=30) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_a_generation(http: httpx.Client, lines: list[dict[str, Any]], stream: bool) -> None:
    body = {"prompt": [SECRET, SECRET + "!" * 40], "max_tokens": 5, "n": 2, "ignore_eos": True, "stream": stream}
    http.post("/v1/completions?key=value", json=body, headers={"X-Request-Id": "mine"})
    wait_until(lambda: len(lines) == 1, "the line")
    (line,) = lines
    seconds = line.pop("seconds")
    assert 0 < seconds < 30
    assert line == {
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "request_id": "mine",
        "tenant": line["tenant"],
        "prompt_tokens": 2 * len(SECRET) + 40 + 2,
        "cached_tokens": 16 + 48,
        "output_tokens": 20,
        "finish_reasons": "length:4",
    }
    assert len(line["tenant"]) == 8


def test_a_refusal_has_no_tokens(http: httpx.Client, lines: list[dict[str, Any]]) -> None:
    http.post("/v1/completions", json={"prompt": SECRET, "temperature": -1})
    http.get("/nowhere/" + "x" * 300)
    httpx.get(str(http.base_url.join("/v1/models")))
    wait_until(lambda: len(lines) == 3, "the lines")
    assert [line["status"] for line in lines] == [400, 404, 401]
    assert all("prompt_tokens" not in line for line in lines)
    assert len(lines[1]["path"]) == 200 and lines[2]["tenant"] == ""


def test_a_client_that_leaves(server: FakeServer, http: httpx.Client, lines: list[dict[str, Any]]) -> None:
    server.in_loop(server.engine.gate.clear)
    body = {"prompt": SECRET, "max_tokens": 50, "n": 3, "stream": True, "ignore_eos": True}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_lines())
    wait_until(lambda: len(lines) == 1, "the line")
    server.in_loop(server.engine.gate.set)
    assert lines[0]["status"] == 200
    assert lines[0]["finish_reasons"] == "abort:3"


def test_probes_are_not_logged(http: httpx.Client, lines: list[dict[str, Any]]) -> None:
    for path in ("/health", "/ready", "/metrics", "/version"):
        http.get(path)
    wait_until(lambda: len(lines) > 0, "a line")
    assert [line["path"] for line in lines] == ["/version"]


def test_without_the_flag_there_are_none() -> None:
    with running_server(fake) as quiet:
        logger = logging.getLogger(ACCESS)
        before = logger.level
        logger.setLevel(logging.INFO)
        seen: list[logging.LogRecord] = []
        logger.addFilter(seen.append)  # type: ignore[arg-type]
        try:
            assert httpx.get(f"{quiet.url}/version").status_code == 200
        finally:
            logger.removeFilter(seen.append)  # type: ignore[arg-type]
            logger.setLevel(before)
        assert seen == []
