"""API keys: who may ask for what."""

import asyncio
import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from starlette.requests import Request
from starlette.responses import Response

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.api_keys import KeyLimits, KeyRings, load_keys
from octavo.server.app import build_app
from octavo.server.endpoints import EndpointRoute, json_response
from octavo.server.security import Access, ApiKeyGuard, access_of, key_of
from tests.server.conftest import FakeServer, fake
from tests.server.running import running_server
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
    "/administration",
]


@pytest.mark.parametrize("path", PATHS)
def test_everything_but_the_probes_wants_a_key(guarded: FakeServer, path: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "first-key"},
        {"x-api-key": "wrong"},
        {"x-api-key": "Bearer first-key"},
        {"Authorization": "Bearer wrong", "x-api-key": "first-key"},
        [("Authorization", "Bearer first-key"), ("Authorization", "Bearer first-key")],
        [("x-api-key", "first-key"), ("x-api-key", "wrong")],
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


def test_anthropics_header_opens_as_the_same_tenant(guarded: FakeServer) -> None:
    tenants = []
    for headers in ({"Authorization": "Bearer first-key"}, {"x-api-key": "first-key"}):
        assert httpx.post(f"{guarded.url}/v1/completions", json={"prompt": "x"}, headers=headers).status_code == 200
        tenants.append(guarded.engine.seen[-1][2]["tenant"])
    assert tenants[0] == tenants[1] == hashlib.sha256(b"first-key").hexdigest()[:32]


def test_keys_are_compared_in_constant_time_and_always_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = load_keys(ServerConfig(api_key=("one", "two", "three"))).user
    compared: list[tuple[int, int]] = []
    original = hmac.compare_digest

    def spy(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return original(a, b)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    for offered in (b"Bearer one", b"Bearer " + b"x" * 5000, b"", b"Bearer \xff\xfe"):
        ring.find([(b"authorization", offered)])
    assert compared == [(32, 32)] * 12


def test_no_key_is_kept_in_clear() -> None:
    rings = load_keys(ServerConfig(api_key=("top-secret",), admin_key=("more-secret",)))
    assert "secret" not in repr([vars(ring) for ring in (rings.user, rings.admin)])


def test_without_keys_everything_is_open() -> None:
    rings = load_keys(ServerConfig())
    assert rings.user.empty
    assert rings.user.find([(b"authorization", b"Bearer x")]) is None
    assert rings.anyone.tenant == ""


@pytest.mark.parametrize("path", ["/admin", "/admin/", "/admin/pause", "/admin/a/b"])
def test_admin_paths_are_one_class(path: str) -> None:
    assert access_of(path) is Access.ADMIN
    assert access_of(path, open_metrics=True) is Access.ADMIN


def test_metrics_can_be_opened() -> None:
    assert access_of("/metrics") is Access.USER
    assert access_of("/metrics", open_metrics=True) is Access.OPEN
    assert access_of("/metrics/", open_metrics=True) is Access.USER


def test_only_probes_are_open(server: FakeServer) -> None:
    """Whatever endpoint comes: it is for users, unless a table says otherwise."""
    routes = [route for route in build_app(server.context).routes if isinstance(route, EndpointRoute)]
    opened = {route.path for route in routes if access_of(route.path) is Access.OPEN}
    assert opened == {"/health", "/ready"}


async def ask(rings: KeyRings, path: str, **headers: str) -> tuple[int, dict[str, Any], str]:
    """Status of a request through the guard, the state that an endpoint behind it sees, and the body."""
    seen: dict[str, Any] = {}
    sent: list[dict[str, Any]] = []

    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        key = key_of(Request(scope))
        seen.update(scope.get("state", {}), name=None if key is None else key.name)
        answer: Response = json_response({})
        await answer(scope, receive, send)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": encoded}
    await ApiKeyGuard(endpoint, rings)(scope, receive, send)
    return sent[0]["status"], seen, sent[1]["body"].decode()


KEYS = ServerConfig(api_key=("user",), admin_key=("boss", "deputy"))


@pytest.mark.parametrize(
    ("path", "key", "status", "words"),
    [
        ("/admin/pause", "boss", 200, ""),
        ("/admin/pause", "deputy", 200, ""),
        ("/admin/pause", "user", 401, "does not open this route: /admin wants an admin key"),
        ("/admin/pause", "wrong", 401, "missing or unknown"),
        ("/admin/pause", None, 401, "missing or unknown"),
        ("/v1/completions", "user", 200, ""),
        ("/v1/completions", "boss", 401, "does not open this route: an admin key opens /admin and nothing else"),
        ("/v1/completions", "wrong", 401, "missing or unknown"),
        ("/v1/completions", None, 401, "missing or unknown"),
        ("/health", None, 200, ""),
        ("/health", "boss", 200, ""),
    ],
)
def test_a_key_opens_its_class_and_no_other(path: str, key: str | None, status: int, words: str) -> None:
    rings = load_keys(KEYS)
    for headers in ({"authorization": f"Bearer {key}"}, {"x_api_key": str(key)}):
        got, seen, body = asyncio.run(ask(rings, path, **(headers if key else {})))
        assert got == status
        assert words in body
        assert bool(seen) == (status == 200)
        if status == 200 and path != "/health":
            assert seen["name"].startswith("key-")
            assert seen["tenant"] == hashlib.sha256(str(key).encode()).hexdigest()[:32]


def test_without_an_admin_key_there_are_no_admin_routes(http: httpx.Client, guarded: FakeServer) -> None:
    error = check_error(http.post("/admin/pause"), 404)
    assert "--admin-key" in error["message"]
    check_error(httpx.post(f"{guarded.url}/admin/pause", headers={"Authorization": "Bearer first-key"}), 404)


def test_an_admin_key_alone_leaves_users_unguarded() -> None:
    with running_server(fake, ServerConfig(port=0, admin_key=("boss",))) as running:
        assert httpx.post(f"{running.url}/v1/completions", json={"prompt": "x"}).status_code == 200
        assert running.engine.seen[-1][2]["tenant"] == ""
        check_error(httpx.post(f"{running.url}/admin/nowhere"), 401)
        check_error(httpx.post(f"{running.url}/admin/nowhere", headers={"x-api-key": "boss"}), 404)


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
def key_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "keys.yaml"
    path.write_text(
        f"keys:\n"
        f"  - {{name: alice, sha256: {digest('a')}, requests_per_minute: 60, tokens_per_minute: 0}}\n"
        f"  - {{name: bob, sha256: {digest('b').upper()}}}\n"
        f"  - {{name: operator, sha256: {digest('o')}, admin: true}}\n"
    )
    yield path


def test_keys_of_a_file(key_file: Path) -> None:
    config = ServerConfig(api_key=("flag",), api_key_file=str(key_file), key_tokens_per_minute=500)
    rings = load_keys(config)

    def find(key: str) -> Any:
        return rings.user.find([(b"authorization", f"Bearer {key}".encode())])

    assert find("a").name == "alice"
    assert find("a").limits == KeyLimits(requests_per_minute=60, tokens_per_minute=0)
    assert find("b").limits == find("flag").limits == KeyLimits(tokens_per_minute=500)
    assert find("o") is None
    found = rings.admin.find([(b"x-api-key", b"o")])
    assert found is not None
    assert found.name == "operator"
    assert find(digest("a")) is None, "a digest is no key"


A = f"name: a, sha256: {digest('a')}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must hold 'keys:'"),
        ("- a", "must hold 'keys:'"),
        (f"keys: [{{{A}}}]\nkey: []", "must hold 'keys:'.* and nothing else"),
        ("a: b\nkeys: {", "is no valid YAML, see line 2"),
        ("keys: [a]", "entry 1 must have fields"),
        ("keys: [{name: a}]", r"entry 1 \('a'\): sha256 is missing"),
        ("keys: [{name: a, sha256: secret-in-clear}]", r"entry 1 \('a'\): sha256 must be .*octavo key hash"),
        ("keys: [{name: a, sha256: 123}]", r"entry 1 \('a'\): sha256 must be a text; put quotes"),
        (f"keys: [{{name: 'a b', sha256: {digest('a')}}}]", r"entry 1 \('a b'\): name must be"),
        (f"keys: [{{{A}}}, {{{A}, rpm: 5}}]", r"entry 2 \('a'\): no such field 'rpm'; known are name, sha256, admin, "),
        (f"keys: [{{{A}, requests_per_minute: -1}}]", r"\('a'\): requests_per_minute must be in \[0"),
        (f"keys: [{{{A}, requests_per_minute: 1.5}}]", "requests_per_minute must be a whole number"),
        (f"keys: [{{{A}, requests_per_minute: true}}]", "requests_per_minute must be a whole number"),
        (f"keys: [{{{A}, admin: true, concurrent_requests: 5}}]", "admin key"),
        (
            f"keys: [{{{A}}}, {{name: b, sha256: {digest('a')}}}]",
            r"entry 1 \('a'\) and entry 2 \('b'\) are the same key",
        ),
        (f"keys: [{{{A}}}, {{name: a, sha256: {digest('b')}}}]", "entry 1 .* and entry 2 .* have the same name"),
        ("keys: [!!python/object/apply:os.system ['true']]", "no valid YAML"),
        ("keys: []", "holds no user key, so everybody could use the server; add one, or leave the flag out"),
        (f"keys: [{{{A}, admin: true}}]", "holds no user key, so everybody could use the server"),
    ],
)
def test_mistakes_in_a_key_file_are_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        load_keys(ServerConfig(api_key_file=str(path)))
    assert (caught.value.field, caught.value.value) == ("api_key_file", str(path))
    assert "secret-in-clear" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_keys(ServerConfig(api_key_file=str(tmp_path / "none.yaml")))


def test_a_key_file_may_hold_admin_keys_alone_if_users_have_keys_too(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(f"keys: [{{{A}, admin: true}}]")
    rings = load_keys(ServerConfig(api_key=("user",), api_key_file=str(path)))
    assert (len(rings.user.keys), len(rings.admin.keys)) == (1, 1)
    with pytest.raises(ConfigError, match=r"api_key \(key-\w+\) and entry 1 \('a'\) are the same key") as caught:
        load_keys(ServerConfig(api_key=("a",), api_key_file=str(path)))
    assert caught.value.field == "api_key_file"


def test_a_key_is_for_users_or_for_operators() -> None:
    with pytest.raises(ConfigError, match="same key"):
        load_keys(ServerConfig(api_key=("x",), admin_key=("x",)))
    for field in ("api_key", "admin_key"):
        with pytest.raises(ConfigError, match=field):
            ServerConfig(**{field: ("",)})
