"""A conversation of the stock client under pressure, over a real engine: with a session it keeps its hits, and its
tokens are the same as without."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo import AsyncLLM
from tests.end_to_end.conftest import serving
from tests.server.running import RunningServer

TURNS = 3


@pytest.fixture(scope="module", params=[False, True], ids=["in turn", "a step ahead"])
def small(request: pytest.FixtureRequest, tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    """A pool of a few conversations."""
    settings: dict[str, Any] = {
        "served_model_name": ("tiny",),
        "num_kv_blocks": 97,
        "max_model_len": 512,
        "async_scheduling": request.param,
    }
    with serving(tiny_file, **settings) as server:
        yield server


@pytest.fixture
def client(small: RunningServer[AsyncLLM]) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{small.url}/v1", api_key="none", max_retries=0, timeout=120)


def crowd(client: openai.OpenAI, salt: int) -> None:
    """Others' prompts, twice as many blocks as there are."""
    prompts = [[3 + (salt * 7 + number * 31 + i * (number + 2)) % 250 for i in range(300)] for number in range(10)]
    client.completions.create(model="tiny", prompt=prompts, max_tokens=1, extra_body={"ignore_eos": True})


def converse(client: openai.OpenAI, extra: dict[str, Any], salt: int) -> list[tuple[int, list[int]]]:
    """(cached tokens, ids of the answer) of each turn."""
    known, turns = [3 + i * 5 % 250 for i in range(100)], []
    for turn in range(TURNS):
        answer = client.completions.create(
            model="tiny",
            prompt=known,
            max_tokens=20,
            temperature=0,
            extra_body={"ignore_eos": True, "return_token_ids": True, **extra},
        )
        ids: list[int] = (answer.choices[0].model_extra or {})["token_ids"]
        assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
        turns.append((answer.usage.prompt_tokens_details.cached_tokens or 0, ids))
        known = [*known, *ids, 9, 8, 7, turn + 3]
        crowd(client, salt + turn)
    return turns


def test_a_second_turn_has_hits_only_with_a_session(client: openai.OpenAI) -> None:
    lost = converse(client, {}, 0)
    kept = converse(client, {"session_id": "mine", "session_lease_s": 300}, 10)
    assert [ids for _, ids in kept] == [ids for _, ids in lost]
    assert [cached for cached, _ in lost] == [0] * TURNS
    # a turn leaves its prompt and 19 of 20 tokens computed: 119 and 143 of them, in blocks of 16
    assert [cached for cached, _ in kept[1:]] == [112, 128]


def test_a_system_prompt_is_held_for_everybody_who_begins_with_it(
    small: RunningServer[AsyncLLM], client: openai.OpenAI
) -> None:
    system = [3 + i * 11 % 250 for i in range(64)]
    with httpx.Client(base_url=small.url, timeout=60) as http:
        made = http.post("/v1/sessions", json={"session_id": "system", "prompt": system}).json()
        assert (made["pinned_tokens"], made["pinned_blocks"], made["lease_s"]) == (64, 4, 600)
        crowd(client, 99)
        answer = client.completions.create(model="tiny", prompt=[*system, 5, 6], max_tokens=1)
        assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 64
        assert http.get("/load").json()["num_pinned_blocks"] >= 4
        assert http.delete("/v1/sessions/system").json()["deleted"]


def test_more_than_may_be_held_is_refused_with_numbers(small: RunningServer[AsyncLLM]) -> None:
    with httpx.Client(base_url=small.url, timeout=60) as http:
        for name in ("a", "b"):
            prompt = [3 + ord(name) + i * 13 % 100 for i in range(280)]
            assert http.post("/v1/sessions", json={"session_id": name, "prompt": prompt}).status_code == 200
        answer = http.post("/v1/sessions", json={"session_id": "c", "prompt": [3 + i * 17 % 250 for i in range(280)]})
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 200
        error = answer.json()["error"]
        assert error["code"] == "pin_budget" and "takes 17 KV blocks of 16 tokens" in error["message"]
        assert http.get("/v1/sessions/c").status_code == 404
        for name in ("a", "b"):
            http.delete(f"/v1/sessions/{name}")


def test_a_stop_string_is_an_end_that_is_held(small: RunningServer[AsyncLLM], client: openai.OpenAI) -> None:
    prompt = [3 + i * 19 % 250 for i in range(40)]
    free = client.completions.create(model="tiny", prompt=prompt, max_tokens=40, temperature=0)
    stop = free.choices[0].text[10:13]
    extra = {"session_id": "stopped"}
    answer = client.completions.create(
        model="tiny", prompt=prompt, max_tokens=40, temperature=0, stop=stop, extra_body=extra
    )
    assert answer.choices[0].finish_reason == "stop"
    held = httpx.get(f"{small.url}/v1/sessions/stopped").json()
    assert held["pinned_tokens"] >= 32 and held["live_requests"] == 0
    told = {"id": "stopped", "pinned_tokens": held["pinned_tokens"], "problem": None}
    assert (answer.model_extra or {})["session"] == told
    httpx.delete(f"{small.url}/v1/sessions/stopped")
