"""/v1/sessions and the request fields, over a stand-in engine: forms, keys, refusals."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo.errors import InvalidRequestError, PinBudgetError
from octavo.request.pin import PinRequest
from octavo.server.state import Phase
from tests.server.conftest import FakeServer, wait_until
from tests.server.fake_engine import BOS, IM_END
from tests.server.test_refusals import check_error

SESSIONS = "/v1/sessions"


@pytest.fixture(autouse=True)
def clean(server: FakeServer) -> Iterator[None]:
    yield
    server.engine.pin_problem = None
    server.engine.pinned.clear()
    server.engine._sessions.clear()


def test_a_session_is_made_found_extended_and_ended(http: httpx.Client) -> None:
    made = http.post(SESSIONS, json={"session_id": "chat-1", "lease_s": 90}).json()
    assert made == {
        "id": "chat-1",
        "object": "session",
        "lease_s": 90.0,
        "expires_in_s": 90.0,
        "expires_at": made["expires_at"],
        "pinned_tokens": 0,
        "pinned_blocks": 0,
        "live_requests": 0,
    }
    assert http.get(f"{SESSIONS}/chat-1").json()["id"] == "chat-1"
    assert http.get(SESSIONS).json()["data"][0]["id"] == "chat-1"
    assert http.post(f"{SESSIONS}/chat-1/extend", json={"lease_s": 120}).json()["lease_s"] == 120
    assert http.delete(f"{SESSIONS}/chat-1").json() == {"id": "chat-1", "object": "session", "deleted": True}
    assert http.get(SESSIONS).json() == {"object": "list", "data": []}


def test_a_session_without_a_name_gets_one(http: httpx.Client) -> None:
    names = {http.post(SESSIONS, json={}).json()["id"] for _ in range(2)}
    assert len(names) == 2 and all(name.startswith("session-") for name in names)


def test_a_prompt_is_computed_and_held_at_once(http: httpx.Client, server: FakeServer) -> None:
    made = http.post(SESSIONS, json={"prompt": "x" * 40, "cache_salt": "s"}).json()
    assert (made["pinned_tokens"], made["pinned_blocks"]) == (32, 2)
    http.post(SESSIONS, json={"prompt": [65, 66, 67]})
    http.post(SESSIONS, json={"messages": [{"role": "system", "content": "Be kind."}]})
    text, ids, chat = server.engine.pinned
    assert text == ((BOS, *b"x" * 40), "s") and ids == ((65, 66, 67), None)
    assert chat[0][-1] == IM_END, "no generation prompt, unless asked for"


@pytest.mark.parametrize("path", [f"{SESSIONS}/none", f"{SESSIONS}/none/extend"])
def test_what_is_not_there_is_a_404(http: httpx.Client, path: str) -> None:
    answer = http.get(path) if path.endswith("none") else http.post(path, json={})
    check_error(answer, 404, param="session_id")
    assert answer.json()["error"]["code"] == "session_not_found"
    check_error(http.delete(f"{SESSIONS}/none"), 404, param="session_id")


def test_sessions_are_seen_only_by_the_key_that_made_them(guarded: FakeServer) -> None:
    def as_key(key: str) -> httpx.Client:
        return httpx.Client(base_url=guarded.url, headers={"Authorization": f"Bearer {key}".encode()})

    with as_key("first-key") as first, as_key("zweiter-schlüssel") as second:
        first.post(SESSIONS, json={"session_id": "mine", "prompt": "x" * 20})
        assert second.get(SESSIONS).json()["data"] == []
        assert second.get(f"{SESSIONS}/mine").status_code == 404
        assert second.delete(f"{SESSIONS}/mine").status_code == 404
        assert second.post(f"{SESSIONS}/mine/extend", json={}).status_code == 404
        assert first.get(f"{SESSIONS}/mine").json()["pinned_tokens"] == 16
        second.post(SESSIONS, json={"session_id": "mine"})
        assert first.get(f"{SESSIONS}/mine").json()["pinned_tokens"] == 16, "the same name is another session"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session_id": "a b"}, "session_id"),
        ({"session_id": ""}, None),
        ({"lease_s": 0}, "lease_s"),
        ({"lease_s": "60"}, "lease_s"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ({"prompt": "x" * 600}, "prompt"),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, "messages"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_is_wrong_is_named(http: httpx.Client, body: dict[str, Any], param: str | None) -> None:
    answer = http.post(SESSIONS, json=body)
    if param is None:
        assert answer.status_code == 200, "an empty name is an absent one"
    else:
        check_error(answer, 400, param=param)


def test_refusals_say_for_good_or_for_now(http: httpx.Client, server: FakeServer) -> None:
    server.engine.pin_problem = InvalidRequestError("session_id", "s", "takes 9 KV blocks, 5 are free of 5")
    check_error(http.post(SESSIONS, json={"prompt": "x"}), 400, param="session_id")
    server.engine.pin_problem = PinBudgetError("takes 3 KV blocks, and 2 are free of 5", 41.5)
    answer = http.post(SESSIONS, json={"prompt": "x"})
    check_error(answer, 429, param="session_id")
    assert answer.json()["error"]["code"] == "pin_budget" and answer.headers["retry-after"] == "42"


def test_a_draining_server_opens_no_session(http: httpx.Client, server: FakeServer) -> None:
    server.context.state.phase = Phase.DRAINING
    try:
        check_error(http.post(SESSIONS, json={}), 503, param=None)
    finally:
        server.context.state.phase = Phase.SERVING


def test_a_client_that_leaves_ends_its_warm_up(server: FakeServer) -> None:
    server.engine.gate.clear()
    try:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + SESSIONS, json={"prompt": "x" * 40}, timeout=0.3)
        wait_until(lambda: server.context.state.in_flight == 0, "the place is given back")
    finally:
        server.engine.gate.set()
    assert server.engine.pinned == []


# ---- the fields of requests


def test_requests_carry_their_session(client: openai.OpenAI, server: FakeServer) -> None:
    extra = {"session_id": "chat-1", "session_lease_s": 30}
    client.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "hi"}], max_tokens=2, extra_body=extra
    )
    client.completions.create(model="fake", prompt="hi", max_tokens=2, extra_body=extra)
    client.completions.create(model="fake", prompt="hi", max_tokens=2)
    wish = PinRequest(session_id="chat-1", lease_s=30)
    assert [options["session"] for *_, options in server.engine.seen[-3:]] == [wish, wish, None]


def test_answers_name_the_session_and_what_it_holds(client: openai.OpenAI) -> None:
    extra = {"session_id": "chat-1"}
    facts = {"id": "chat-1", "pinned_tokens": 16, "problem": "no room"}
    whole = client.completions.create(model="fake", prompt="hi", max_tokens=2, extra_body=extra)
    assert (whole.model_extra or {})["session"] == facts
    chunks = list(client.completions.create(model="fake", prompt="hi", max_tokens=9, stream=True, extra_body=extra))
    assert len(chunks) > 1 and not any("session" in (chunk.model_extra or {}) for chunk in chunks[:-1])
    assert (chunks[-1].model_extra or {})["session"] == facts
    plain = client.completions.create(model="fake", prompt="hi", max_tokens=2)
    assert "session" not in (plain.model_extra or {})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"session_id": "a b"}, "session_id"),
        ({"session_id": "a", "session_lease_s": 0.5}, "session_lease_s"),
        ({"session_lease_s": 5}, "session_lease_s"),
        ({"session_id": "a", "prompt": ["x", "y"]}, "session_id"),
    ],
)
def test_sessions_of_requests_are_checked(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    check_error(http.post("/v1/completions", json={"prompt": "x", **fields}), 400, param=param)
