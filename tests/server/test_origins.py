"""Which web pages may use the server, by the headers that a browser sends and looks for."""

from collections.abc import Iterator

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from tests.server.conftest import FakeServer, fake
from tests.server.running import running_server
from tests.server.test_refusals import check_error

CHAT = "https://chat.example"
FOREIGN = [
    "https://evil.example",
    "http://chat.example",
    "https://chat.example:444",
    "https://chat.example.evil.example",
    "https://CHAT.example",
    "https://chat.example/",
    "null",
    "",
    "http://[::1",
    "\xe9",
]


@pytest.fixture(scope="module")
def open_to_chat() -> Iterator[FakeServer]:
    config = ServerConfig(port=0, allowed_origins=(CHAT, "http://localhost:3000"), api_key=("secret",))
    with running_server(fake, config) as running:
        yield running


def cors_headers(answer: httpx.Response) -> list[str]:
    return [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("origin", [*FOREIGN, CHAT])
def test_by_default_no_page_may(http: httpx.Client, server: FakeServer, origin: str) -> None:
    headers = {"Origin": origin.encode("latin-1")}
    seen = len(server.engine.seen)
    for path in ("/v1/completions", "/health", "/nowhere"):
        for answer in (
            http.post(path, json={"prompt": "x"}, headers=headers),
            http.get(path, headers=headers),
            http.options(path, headers=headers | {"Access-Control-Request-Method": "POST"}),
        ):
            assert check_error(answer, 403)["code"] == "origin_not_allowed"
            assert not cors_headers(answer)
            assert answer.headers["x-request-id"]
    assert len(server.engine.seen) == seen, "nothing was run: a blind request must not make work"


@pytest.mark.parametrize("origin", FOREIGN)
def test_an_allowed_page_allows_no_other(open_to_chat: FakeServer, origin: str) -> None:
    headers = {"Origin": origin.encode("latin-1"), "Authorization": b"Bearer secret"}
    answer = httpx.post(f"{open_to_chat.url}/v1/completions", json={"prompt": "x"}, headers=headers)
    check_error(answer, 403)
    assert not cors_headers(answer)


def test_a_preflight_of_an_allowed_page(open_to_chat: FakeServer) -> None:
    """As a browser sends it: without the key, before a POST with JSON and headers of the stock client."""
    asked = {
        "Origin": CHAT,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
    }
    answer = httpx.options(f"{open_to_chat.url}/v1/chat/completions", headers=asked)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == CHAT
    assert answer.headers["vary"] == "Origin"
    assert {"POST", "DELETE", "GET"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    assert answer.headers["access-control-allow-headers"] == asked["Access-Control-Request-Headers"]
    assert answer.headers["access-control-max-age"] == "600"
    assert "access-control-allow-credentials" not in answer.headers
    assert open_to_chat.engine.seen == []


def test_an_allowed_page_reads_answers_and_errors(open_to_chat: FakeServer) -> None:
    key = {"Authorization": "Bearer secret"}
    for extra, status in ((key, 200), ({}, 401)):
        for stream in (False, True):
            answer = httpx.post(
                f"{open_to_chat.url}/v1/completions",
                json={"prompt": "x", "stream": stream},
                headers={"Origin": CHAT, **extra},
            )
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == CHAT
            assert answer.headers["vary"] == "Origin"
            exposed = answer.headers["access-control-expose-headers"]
            assert {"x-request-id", "retry-after"} <= set(exposed.split(", "))
    # OPTIONS without the header that makes it a preflight is a request like any other.
    assert httpx.options(f"{open_to_chat.url}/v1/models", headers={"Origin": CHAT}).status_code == 401


def test_programs_send_no_origin(open_to_chat: FakeServer) -> None:
    headers = {"Authorization": "Bearer secret"}
    answer = httpx.post(f"{open_to_chat.url}/v1/completions", json={"prompt": "x"}, headers=headers)
    assert answer.status_code == 200
    assert not cors_headers(answer)


def test_all_pages_if_told_so() -> None:
    with running_server(fake, ServerConfig(port=0, allowed_origins=("*",))) as running:
        for origin in ("https://a.example", "null"):
            answer = httpx.get(f"{running.url}/v1/models", headers={"Origin": origin})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin


def test_the_servers_own_pages_under_an_address(http: httpx.Client, server: FakeServer) -> None:
    port = server.url.rsplit(":", 1)[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        answer = http.get("/v1/models", headers={"Origin": f"http://{host}", "Host": host})
        assert answer.status_code == 200
        assert not cors_headers(answer)
    rebound = {"Origin": f"http://evil.example:{port}", "Host": f"evil.example:{port}"}
    check_error(http.post("/v1/completions", json={"prompt": "x"}, headers=rebound), 403)


@pytest.mark.parametrize("origin", ["chat.example", "https://chat.example/", "https://a b", "null", "", "**"])
def test_origins_that_no_browser_sends(origin: str) -> None:
    with pytest.raises(ConfigError, match="allowed_origins"):
        ServerConfig(allowed_origins=(origin,))
