"""Responses that are kept: read again, gone on from, truncated, and of nobody else."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo.config import ServerConfig
from tests.server.conftest import FakeServer, fake
from tests.server.responding import CALL, THOUGHT, TOOL, prompt_of, say, thinking
from tests.server.running import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose model thinks and calls."""
    with running_server(thinking) as running:
        yield running


@pytest.fixture(autouse=True)
def plain_answers(server: FakeServer) -> Iterator[None]:
    """Each test begins with a model that says nothing in particular."""
    server.engine.script, server.engine.stride = None, 1
    yield
    server.engine.fail_after.clear()


def test_a_kept_response_is_the_same_again(server: FakeServer, client: openai.OpenAI, http: httpx.Client) -> None:
    say(server, CALL)
    for stream in (False, True):
        if stream:
            *_, last = client.responses.create(model="fake", input="hello", tools=[TOOL], stream=True)
            assert last.type == "response.completed"
            made = last.response
        else:
            made = client.responses.create(model="fake", input="hello", tools=[TOOL])
        kept = client.responses.retrieve(made.id)
        assert kept.model_dump() == made.model_dump()
        assert http.get(f"/v1/responses/{made.id}").json()["store"] is True
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            client.responses.retrieve(made.id)
    assert http.delete(f"/v1/responses/{made.id}").status_code == 404


def test_store_false_keeps_nothing(client: openai.OpenAI, http: httpx.Client) -> None:
    made = client.responses.create(model="fake", input="x", store=False, max_output_tokens=1)
    assert http.get(f"/v1/responses/{made.id}").status_code == 404
    answer = http.post("/v1/responses", json={"input": "y", "previous_response_id": made.id})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "previous_response_id"


def test_responses_of_another_key_do_not_exist(guarded: FakeServer) -> None:
    keys = [{"authorization": f"Bearer {key}"} for key in ("first-key", "zweiter-schlüssel")]
    headers = [{name: value.encode() for name, value in key.items()} for key in keys]
    with httpx.Client(base_url=guarded.url, timeout=30) as http:
        body = {"input": "secret", "max_output_tokens": 2}
        made = http.post("/v1/responses", json=body, headers=headers[0]).json()["id"]
        for path in ("", "/input_items"):
            assert http.get(f"/v1/responses/{made}{path}", headers=headers[0]).status_code == 200
            assert http.get(f"/v1/responses/{made}{path}", headers=headers[1]).status_code == 404
        assert http.delete(f"/v1/responses/{made}", headers=headers[1]).status_code == 404
        assert http.post(f"/v1/responses/{made}/cancel", headers=headers[1]).status_code == 404
        chained = http.post("/v1/responses", json=body | {"previous_response_id": made}, headers=headers[1])
        assert chained.status_code == 400
        assert chained.json()["error"]["code"] == "previous_response_not_found"


def test_a_chain_is_the_whole_conversation(server: FakeServer, client: openai.OpenAI) -> None:
    """Three turns with thought, text and calls: each prompt has the very tokens of the conversation sent whole."""
    history: list[Any] = []
    previous: str | None = None
    turns: list[tuple[str, Any]] = [
        (f"<think>which city?</think>{CALL}", "what weather is it?"),
        (THOUGHT, None),
        ("You are welcome.", [{"role": "user", "content": "thanks"}]),
    ]
    call_id = ""
    for text, given in turns:
        say(server, text)
        output = {"type": "function_call_output", "call_id": call_id, "output": "rain"}
        asked: Any = [output] if given is None else given
        made = client.responses.create(
            model="fake", input=asked, previous_response_id=previous, tools=[TOOL], instructions="be kind"
        )
        chained = server.engine.seen[-1][0]
        history += [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        whole = client.responses.create(model="fake", input=history, tools=[TOOL], instructions="be kind", store=False)
        assert server.engine.seen[-1][0] == chained
        assert whole.output_text == made.output_text
        assert made.usage is not None
        assert made.usage.input_tokens == len(chained)
        assert made.previous_response_id == previous
        history += [item.model_dump(exclude_none=True) for item in made.output]
        previous = made.id
        call_id = next((item.call_id for item in made.output if item.type == "function_call"), "")
    listed = client.responses.input_items.list(str(previous), order="asc", limit=100).data
    assert [item.type for item in listed] == [
        "message", "reasoning", "message", "function_call", "function_call_output", "reasoning", "message", "message",
    ]  # fmt: skip


def test_instructions_are_not_carried_on(server: FakeServer, client: openai.OpenAI) -> None:
    first = client.responses.create(model="fake", input="a", instructions="be kind", max_output_tokens=1)
    client.responses.create(model="fake", input="b", previous_response_id=first.id, max_output_tokens=1)
    assert "be kind" not in prompt_of(server)
    assert "user\na" in prompt_of(server)


def test_a_chain_outlives_its_beginning(server: FakeServer, client: openai.OpenAI) -> None:
    first = client.responses.create(model="fake", input="first question", max_output_tokens=1)
    second = client.responses.create(model="fake", input="b", previous_response_id=first.id, max_output_tokens=1)
    client.responses.delete(first.id)
    client.responses.create(model="fake", input="c", previous_response_id=second.id, max_output_tokens=1)
    assert "first question" in prompt_of(server)


def test_tokens_are_counted_as_they_are_used(server: FakeServer, client: openai.OpenAI) -> None:
    say(server, CALL)
    first = client.responses.create(model="fake", input="a", tools=[TOOL])
    call: dict[str, Any] = {"model": "fake", "input": "b", "tools": [TOOL], "instructions": "be kind"}
    before = len(server.engine.seen)
    counted = client.responses.input_tokens.count(**call, previous_response_id=first.id)
    assert len(server.engine.seen) == before
    made = client.responses.create(**call, previous_response_id=first.id)
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens
    long: Any = [{"role": "user", "content": "x" * 3000}] * 3
    fits = client.responses.input_tokens.count(model="fake", input=long, truncation="auto").input_tokens
    assert 3000 < fits < 4096
    assert client.responses.input_tokens.count(model="fake", input=long).input_tokens > 9000
    with pytest.raises(openai.BadRequestError, match="input"):
        client.responses.input_tokens.count(model="fake", input=[])


def test_a_call_that_was_cut_off_ends_its_chain(server: FakeServer, client: openai.OpenAI, http: httpx.Client) -> None:
    say(server, CALL)
    cut: Any = next(
        made
        for length in range(1, 200)
        if (made := client.responses.create(model="fake", input="a", tools=[TOOL], max_output_tokens=length))
        .output[-1]
        .type
        == "function_call"
    )
    assert (cut.status, cut.output[-1].status) == ("incomplete", "incomplete")
    body = {"input": "b", "previous_response_id": cut.id}
    for path in ("/v1/responses", "/v1/responses/input_tokens"):
        answer = http.post(path, json=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == "previous_response_id"
        assert "cut off" in answer.json()["error"]["message"]


def test_two_may_go_on_from_one(server: FakeServer, client: openai.OpenAI) -> None:
    first = client.responses.create(model="fake", input="a", max_output_tokens=1)
    for text in ("left", "right"):
        client.responses.create(model="fake", input=text, previous_response_id=first.id, max_output_tokens=1)
        assert ("left" in prompt_of(server)) is (text == "left")


def test_input_items_come_in_pages(client: openai.OpenAI, http: httpx.Client) -> None:
    items: Any = [{"role": "user", "content": str(number)} for number in range(7)]
    made = client.responses.create(model="fake", input=items, max_output_tokens=1)
    listed = list(client.responses.input_items.list(made.id, limit=3))
    texts = [item.content[0].text for item in listed if item.type == "message" and item.content[0].type == "input_text"]
    assert texts == list("6543210")
    page = http.get(f"/v1/responses/{made.id}/input_items", params={"order": "asc", "limit": 2}).json()
    assert (page["object"], page["has_more"], len(page["data"])) == ("list", True, 2)
    rest = http.get(f"/v1/responses/{made.id}/input_items", params={"order": "asc", "after": page["last_id"]}).json()
    assert (rest["has_more"], len(rest["data"])) == (False, 5)
    for params in ({"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"order": "up"}, {"after": "none"}):
        wrong = http.get(f"/v1/responses/{made.id}/input_items", params=params)
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] in params


def test_cancel(client: openai.OpenAI) -> None:
    made = client.responses.create(model="fake", input="x", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError, match="has ended"):
        client.responses.cancel(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_none")


def test_a_server_that_keeps_nothing_says_so() -> None:
    with (
        running_server(fake, ServerConfig(port=0, response_store_size=0)) as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):
        made = http.post("/v1/responses", json={"input": "x", "max_output_tokens": 1}).json()
        assert made["store"] is False
        assert http.get(f"/v1/responses/{made['id']}").status_code == 404
        for body in ({"store": True}, {"previous_response_id": "resp_1"}):
            refused = http.post("/v1/responses", json={"input": "x", **body})
            assert refused.status_code == 400
            assert "--response-store-size" in refused.json()["error"]["message"]


@pytest.mark.parametrize("limit", ["response_store_bytes", "max_body_bytes"])
def test_what_is_larger_than_may_be_kept_is_answered_all_the_same(limit: str) -> None:
    config = ServerConfig(port=0, **{limit: 2**20})  # type: ignore[arg-type]
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x" * 600_000}]}
    with running_server(fake, config) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        body: dict[str, Any] = {"input": [thought, {"role": "user", "content": "y"}], "max_output_tokens": 1}
        first = http.post("/v1/responses", json=body).json()
        assert first["store"] is True
        second = http.post("/v1/responses", json=body | {"previous_response_id": first["id"]}).json()
        assert (second["status"], second["store"]) == ("incomplete", False)
        assert http.get(f"/v1/responses/{second['id']}").status_code == 404
        assert http.get(f"/v1/responses/{first['id']}").status_code == 200


def test_a_chain_grows_no_longer_than_a_conversation(client: openai.OpenAI) -> None:
    call: dict[str, Any] = {"model": "fake", "max_output_tokens": 1, "truncation": "auto"}
    call["input"] = [{"role": "user", "content": "x"}] * 2100
    first = client.responses.create(**call)
    with pytest.raises(openai.BadRequestError, match="at most 4096"):
        client.responses.create(**call, previous_response_id=first.id)


def test_the_oldest_turns_leave_first(server: FakeServer, client: openai.OpenAI, http: httpx.Client) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "r" * 300}
    turns: list[Any] = []
    for number in range(20):
        turns += [{"role": "user", "content": f"<{number}>" + "u" * 300}, call, result]
    turns.append({"role": "user", "content": "last"})
    body = {"input": turns, "instructions": "be kind", "max_output_tokens": 10}
    whole = http.post("/v1/responses", json=body)
    assert whole.status_code == 400
    assert whole.json()["error"]["code"] == "context_length_exceeded"
    answer = http.post("/v1/responses", json=body | {"truncation": "auto"}).json()
    assert answer["truncation"] == "auto"
    prompt = prompt_of(server)
    assert "be kind" in prompt
    assert "last" in prompt
    kept = [number for number in range(20) if f"<{number}>" in prompt]
    assert kept == list(range(kept[0], 20))
    assert 0 < kept[0] < 20
    assert prompt.count("r" * 300) == len(kept)
    longest = server.engine.info.max_model_len - 10
    assert longest - 700 < answer["usage"]["input_tokens"] <= longest
    fits = client.responses.create(model="fake", input="x", truncation="auto", max_output_tokens=1)
    assert fits.usage is not None
    hopeless = http.post("/v1/responses", json={"input": "x" * 5000, "truncation": "auto"})
    assert hopeless.status_code == 400
