"""/v1/responses through the stock client: items, events, and what is refused."""

import asyncio
import json
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pydantic
import pytest

from octavo.config import ServerConfig
from octavo.request.repetition import RepetitionDetection
from octavo.request.structured import StructuredKind
from tests.server.conftest import FakeServer, wait_until
from tests.server.fake_engine import FakeTokenizer
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


def same(left: Any, right: Any) -> None:
    """Two responses say the same; names and times aside."""
    strip = {"id", "created_at", "completed_at", "call_id"}

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(item) for key, item in value.items() if key not in strip}
        return [bare(item) for item in value] if isinstance(value, list) else value

    assert bare(left) == bare(right)


def test_a_text(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="fake", input="hello", max_output_tokens=8, metadata={"a": "b"})
    assert answer.object == "response"
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    (message,) = answer.output
    assert message.type == "message"
    assert message.status == "incomplete"
    assert answer.output_text
    assert answer.usage is not None
    assert answer.usage.output_tokens == 8
    assert answer.usage.total_tokens == answer.usage.input_tokens + 8
    assert answer.usage.input_tokens_details.cached_tokens == answer.usage.input_tokens // 16 * 16
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert answer.metadata == {"a": "b"}
    assert (answer.model, answer.temperature, answer.top_p, answer.tools) == ("fake", 0.5, 1.0, [])
    assert (answer.tool_choice, answer.parallel_tool_calls, answer.truncation) == ("auto", True, "disabled")


def test_instructions_and_items_make_the_prompt(server: FakeServer, client: openai.OpenAI) -> None:
    items: Any = [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
        {"role": "user", "content": "d"},
    ]
    client.responses.create(model="fake", instructions="be kind", input=items, max_output_tokens=1)
    chat: Any = [
        {"role": "system", "content": "be kind"},
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    client.chat.completions.create(model="fake", messages=chat, max_tokens=1)
    assert server.engine.seen[-2][0] == server.engine.seen[-1][0]


HELLO: Any = [{"role": "user", "content": "hello"}]
ANSWERS = {"text": "It rains.", "calls": CALL, "thought": THOUGHT, "all": f"<think>hm</think>{CALL}", "none": ""}


@pytest.mark.parametrize("stride", [1, 3, 1000])
@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS)
def test_stream_equals_whole(server: FakeServer, client: openai.OpenAI, text: str, stride: int) -> None:
    say(server, text, stride)
    call: dict[str, Any] = {"model": "fake", "input": "hello", "tools": [TOOL], "top_logprobs": 1}
    whole = client.responses.create(**call)
    events = list(client.responses.create(**call, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]
    assert last.type == "response.completed"
    same(last.response.model_dump(), whole.model_dump())
    check_events([event.model_dump() for event in events], last.response.model_dump()["output"])


def check_events(events: list[dict[str, Any]], output: list[dict[str, Any]]) -> None:
    """The events between the first and the last tell each item: its beginning, deltas that add up to it, its end."""
    for index, item in enumerate(output):
        mine = [event for event in events if event.get("output_index") == index]
        assert mine[0]["type"] == "response.output_item.added"
        assert mine[0]["item"]["status"] == "in_progress"
        assert mine[-1]["type"] == "response.output_item.done"
        assert mine[-1]["item"] == item
        assert all(event["item_id"] == item["id"] for event in mine[1:-1])
        deltas = [event for event in mine if event["type"].endswith(".delta")]
        (done,) = [event for event in mine if event["type"].endswith(("text.done", "arguments.done"))]
        told = done["arguments"] if item["type"] == "function_call" else done["text"]
        whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(event["delta"] for event in deltas) == told == whole
        assert all(event["delta"] for event in deltas)
        if item["type"] != "function_call":
            kinds = [event["type"] for event in mine]
            assert kinds[1] == "response.content_part.added"
            assert kinds[-2] == "response.content_part.done"
        if item["type"] == "message":
            assert [token for event in deltas for token in event["logprobs"]] == done["logprobs"]
            assert done["logprobs"] == item["content"][0]["logprobs"]
    assert [event["output_index"] for event in events[2:-1]] == sorted(event["output_index"] for event in events[2:-1])


def test_the_stock_stream_helper(server: FakeServer, client: openai.OpenAI) -> None:
    say(server, CALL)
    with client.responses.stream(model="fake", input="hello", tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Let me see."
    call = final.output[1]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Köln"}


def test_calls(server: FakeServer, client: openai.OpenAI) -> None:
    say(server, CALL)
    answer = client.responses.create(model="fake", input="hello", tools=[TOOL], tool_choice="required")
    message, call = answer.output
    assert message.type == "message"
    assert call.type == "function_call"
    assert (call.name, call.arguments, call.status) == ("weather", '{"city": "Köln"}', "completed")
    assert answer.status == "completed"
    assert answer.tools[0].type == "function"
    params = server.engine.seen[-1][1]
    assert params.structured_outputs is not None
    assert params.structured_outputs.kind is StructuredKind.CALLS
    client.responses.create(
        model="fake", input="hello", tools=[TOOL], tool_choice={"type": "function", "name": "weather"}
    )
    assert client.responses.create(model="fake", input="x", tools=[TOOL], tool_choice="none").output_text == CALL


def test_one_call_where_parallel_ones_are_not_wanted(server: FakeServer, client: openai.OpenAI) -> None:
    say(server, CALL + CALL)
    answer = client.responses.create(model="fake", input="x", tools=[TOOL], parallel_tool_calls=False)
    assert [item.type for item in answer.output].count("function_call") == 1
    assert answer.parallel_tool_calls is False


def test_a_call_that_is_cut_off_is_incomplete(server: FakeServer, client: openai.OpenAI) -> None:
    say(server, CALL)
    answer = client.responses.create(model="fake", input="x", tools=[TOOL], max_output_tokens=63)
    call = answer.output[-1]
    assert call.type == "function_call"
    assert call.status == "incomplete"
    assert '{"city": "Köln"}'.startswith(call.arguments)
    assert answer.status == "incomplete"


def test_reasoning(server: FakeServer, client: openai.OpenAI) -> None:
    say(server, THOUGHT)
    answer = client.responses.create(model="fake", input="x", reasoning={"effort": "low", "summary": "auto"})
    thought, message = answer.output
    assert thought.type == "reasoning"
    assert thought.content is not None
    assert thought.content[0].text == "hm, well"
    assert message.type == "message"
    assert answer.output_text == "It rains."
    assert answer.usage is not None
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens
    assert "reasoning_effort=low" in prompt_of(server)


class Weather(pydantic.BaseModel):
    """What `parse` reads."""

    city: str
    rain: bool


def test_parse(server: FakeServer, client: openai.OpenAI) -> None:
    say(server, '{"city": "Köln", "rain": true}')
    answer = client.responses.parse(model="fake", input="x", text_format=Weather)
    assert answer.output_parsed == Weather(city="Köln", rain=True)
    shape = server.engine.seen[-1][1].structured_outputs
    assert shape is not None
    assert (shape.kind, shape.strict) == (StructuredKind.JSON_SCHEMA, True)
    assert json.loads(shape.source)["properties"]["rain"]["type"] == "boolean"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stock client warns of what it has put into its own objects
        items: Any = [*answer.output, {"role": "user", "content": "y"}]
        assert client.responses.create(model="fake", input=items).status == "completed"


def test_text_formats(server: FakeServer, client: openai.OpenAI) -> None:
    client.responses.create(model="fake", input="x", text={"format": {"type": "json_object"}}, max_output_tokens=1)
    shape = server.engine.seen[-1][1].structured_outputs
    assert shape is not None
    assert shape.kind is StructuredKind.JSON_OBJECT
    client.responses.create(
        model="fake", input="x", text={"format": {"type": "text"}, "verbosity": "medium"}, max_output_tokens=1
    )
    assert server.engine.seen[-1][1].structured_outputs is None


def test_fields_of_other_endpoints_arrive(server: FakeServer, client: openai.OpenAI) -> None:
    detection = {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 4}
    lists = {"bad_words": ["no"], "allowed_token_ids": [1, 2]}
    more = {**lists, "repetition_detection": detection, "logits_processors": {"quiet": {"by": 1.5}}}
    client.responses.create(model="fake", input="x", max_output_tokens=9, extra_body=more)
    params = server.engine.seen[-1][1]
    assert params.repetition_detection == RepetitionDetection(**detection)
    assert params.logits_processors == {"quiet": {"by": 1.5}}
    assert {name: list(getattr(params, name)) for name in lists} == lists


def test_sampling_fields_arrive(server: FakeServer, client: openai.OpenAI) -> None:
    more = {"top_k": 7, "seed": 3, "stop": ["q"], "min_tokens": 2, "logit_bias": {"5": 1.5}, "cache_salt": "s"}
    client.responses.create(model="fake", input="x", temperature=0.25, top_p=0.5, max_output_tokens=9, extra_body=more)
    _, params, options = server.engine.seen[-1]
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (0.25, 0.5, 7, 3)
    assert (params.stop, params.min_tokens, params.logit_bias, params.max_tokens) == (("q",), 2, {5: 1.5}, 9)
    assert options["cache_salt"] == "s"


def test_what_a_session_holds_is_told(server: FakeServer, http: httpx.Client) -> None:
    body = {"input": "x", "max_output_tokens": 2, "session_id": "s-1", "session_lease_s": 60}
    answer = http.post("/v1/responses", json=body).json()
    assert answer["session"] == {"id": "s-1", "pinned_tokens": 16, "problem": "no room"}
    assert server.engine.seen[-1][2]["session"].lease_s == 60
    assert "session" not in http.post("/v1/responses", json={"input": "x", "max_output_tokens": 2}).json()


def test_a_budget_of_reasoning_arrives(server: FakeServer, client: openai.OpenAI) -> None:
    client.responses.create(model="fake", input="x", max_output_tokens=2, extra_body={"thinking_token_budget": 7})
    spec = server.engine.seen[-1][1].reasoning
    assert spec is not None
    assert spec.budget == 7


def test_logprobs(client: openai.OpenAI) -> None:
    call: dict[str, Any] = {"model": "fake", "input": "x", "max_output_tokens": 4}
    answer = client.responses.create(**call, include=["message.output_text.logprobs"], top_logprobs=2)
    message = answer.output[0]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert b"".join(bytes(token.bytes) for token in part.logprobs).decode() == part.text
    assert all(len(token.top_logprobs) == 2 for token in part.logprobs)
    plain = client.responses.create(**call).output[0]
    assert plain.type == "message"
    assert plain.content[0].type == "output_text"
    assert plain.content[0].logprobs == []


def test_a_failure_midway(server: FakeServer, client: openai.OpenAI, http: httpx.Client) -> None:
    client.responses.create(model="fake", input="broken", max_output_tokens=1)
    server.engine.fail_after[FakeTokenizer().decode(server.engine.seen[-1][0])] = 3
    *_, last = client.responses.create(model="fake", input="broken", stream=True)
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert last.response.error is not None
    assert last.response.error.message == "the row holds NaN"
    assert last.response.output_text
    assert http.get(f"/v1/responses/{last.response.id}").status_code == 404
    answer = http.post("/v1/responses", json={"input": "broken"})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "generation_failed"


def test_a_failure_before_the_first_token_has_its_status(server: FakeServer, http: httpx.Client) -> None:
    server.engine.queue_full = True
    try:
        answer = http.post("/v1/responses", json={"input": "x", "stream": True})
    finally:
        server.engine.queue_full = False
    assert answer.status_code == 429
    assert answer.headers["retry-after"]


def test_a_client_that_leaves_ends_its_response(server: FakeServer, http: httpx.Client) -> None:
    before = server.engine.records.num_records
    server.in_loop(server.engine.gate.clear)
    try:
        with http.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as answer:
            lines = answer.iter_lines()  # dropped, it would close the connection
            next(lines)
            wait_until(lambda: bool(server.engine.live), "it runs")
        wait_until(lambda: not server.engine.live, "it has ended")
    finally:
        server.in_loop(server.engine.gate.set)
    assert server.engine.records.num_records == before


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_client_that_stops_waiting_ends_its_answer(server: FakeServer, http: httpx.Client, path: str) -> None:
    body = {"/v1/responses": {"input": "x"}, "/v1/messages": {"messages": HELLO, "max_tokens": 100}}[path]
    server.in_loop(server.engine.gate.clear)
    try:
        with pytest.raises(httpx.ReadTimeout):
            http.post(path, json=body, timeout=httpx.Timeout(30, read=0.3))
        wait_until(lambda: not server.engine.live, "it has ended")
    finally:
        server.in_loop(server.engine.gate.set)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/responses", {"input": "x"}, {"type": "error", "code": "shutting_down", "sequence_number": 5}),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 100}, {"type": "error"}),
    ],
)
def test_a_stream_that_a_shutdown_cuts_off_says_so(path: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    with running_server(thinking, ServerConfig(port=0, shutdown_timeout=0)) as ending:
        ending.in_loop(ending.engine.gate.clear)
        with httpx.stream("POST", ending.url + path, json={**body, "stream": True}, timeout=30) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            ending.in_loop(ending.http.stop)
            rest = [line for line in lines if line]
    assert first.startswith("event: ")
    assert rest[-2] == "event: error"
    error = json.loads(rest[-1].removeprefix("data: "))
    assert {name: error[name] for name in expected} == expected
    assert "shutting down" in str(error)


def test_async_client(server: FakeServer) -> None:
    say(server, THOUGHT)

    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            async with client.responses.stream(model="fake", input="x") as stream:
                kinds = [event.type async for event in stream]
                final = await stream.get_final_response()
            assert final.output_text == "It rains."
            assert (await client.responses.retrieve(final.id)).output_text == "It rains."
            return kinds

    kinds = asyncio.run(ask())
    assert "response.reasoning_text.delta" in kinds
    assert kinds[-1] == "response.completed"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "name": "x"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "none"}}, "tool_choice"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"truncation": "middle"}, "truncation"),
        ({"metadata": {"a": 5}}, "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"n": 2}, "n"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": "x"}] * 4097}, "input"),
        ({"stop": ["x" * 100_000]}, "stop"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"type": "computer_call"}]}, "input[0]"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content"),
        ({"input": [{"role": "critic", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "[]"}]}, "input[0].arguments"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"input": "x" * 5000}, "input"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    server: FakeServer, http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    before = len(server.engine.seen)
    answer = http.post("/v1/responses", json={"input": "x", **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert param in answer.json()["error"]["message"]
    assert len(server.engine.seen) == before


def test_no_model_of_that_name(http: httpx.Client) -> None:
    assert http.post("/v1/responses", json={"input": "x", "model": "other"}).status_code == 404


def test_a_stream_cannot_be_retrieved(client: openai.OpenAI, http: httpx.Client) -> None:
    made = client.responses.create(model="fake", input="x", max_output_tokens=1)
    answer = http.get(f"/v1/responses/{made.id}", params={"stream": "true"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stream"
