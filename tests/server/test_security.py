"""API keys."""

import hmac

import httpx
import openai
import pytest

from octavo.server.security import KeyRing
from tests.server.conftest import FakeServer
from tests.server.test_refusals import check_error

PATHS = [
    "/v1/models",
    "/tokenize",
    "/detokenize",
    "/metrics",
    "/load",
    "/version",
    "/openapi.json",
    "/nowhere",
    "/health/",
    "//health",
    "/health/../v1/models",
]


@pytest.mark.parametrize("path", PATHS)
def test_everything_but_the_probes_wants_a_key(guarded: FakeServer, path: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "first-key"},
    ):
        answer = httpx.get(guarded.url + path, headers=headers)
        error = check_error(answer, 401)
        assert error["type"] == "authentication_error"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert httpx.post(guarded.url + "/v1/completions", json={"prompt": "x"}).status_code == 401
    for probe in ("/health", "/ready"):
        assert httpx.get(guarded.url + probe).status_code == 200


def test_each_key_opens(guarded: FakeServer) -> None:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="first-key", max_retries=0) as client:
        assert client.completions.create(model="fake", prompt="x").choices[0].text
    first = guarded.engine.seen[-1][2]["tenant"]
    headers = {"Authorization": "bEaReR  zweiter-schlüssel".encode()}
    assert httpx.post(f"{guarded.url}/v1/completions", json={"prompt": "x"}, headers=headers).status_code == 200
    second = guarded.engine.seen[-1][2]["tenant"]
    assert first
    assert second
    assert first != second
    assert "first-key" not in first


def test_keys_are_compared_in_constant_time_and_always_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = KeyRing(["one", "two", "three"])
    compared: list[tuple[int, int]] = []
    original = hmac.compare_digest

    def spy(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return original(a, b)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    for offered in (b"Bearer one", b"Bearer " + b"x" * 5000, b"", b"Bearer \xff\xfe"):
        ring.tenant_of(offered)
    assert compared == [(32, 32)] * 12


def test_without_keys_everything_is_open() -> None:
    assert KeyRing([]).open
    assert KeyRing([]).tenant_of(b"Bearer x") is None
