"""/v1/messages through the stock client: blocks, events, counts, errors, and what is refused."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pydantic
import pytest

from octavo.request.structured import StructuredKind
from octavo.server.anthropic.partial_json import object_so_far
from tests.server.conftest import FakeServer, wait_until
from tests.server.fake_engine import EOS, FakeEngine, FakeTokenizer
from tests.server.running import running_server

HELLO: Any = [{"role": "user", "content": "hello"}]
SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"name": "weather", "description": "of a city", "input_schema": SCHEMA}
CALL = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "n": [1, 22]}}\n</tool_call>'
THOUGHT = "<think>\nhm, well\n</think>\n\nIt rains."
ANSWERS = {"text": "It rains.", "calls": CALL, "thought": THOUGHT, "all": f"<think>hm</think>{CALL}", "none": ""}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose model thinks and calls."""

    async def start() -> FakeEngine:
        return FakeEngine(max_model_len=4096, template="{{ tools }} <tool_call> {{ enable_thinking }} <think> </think>")

    with running_server(start) as running:
        yield running


@pytest.fixture(autouse=True)
def plain_answers(server: FakeServer) -> Iterator[None]:
    """Each test begins with a model that says nothing in particular."""
    server.engine.script, server.engine.stride = None, 1
    yield
    server.engine.fail_after.clear()


@pytest.fixture
def claude(server: FakeServer) -> Iterator[anthropic.Anthropic]:
    """The stock client."""
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=30) as made:
        yield made


def say(server: FakeServer, text: str, stride: int = 1) -> None:
    """From here on every answer of the model is this text."""
    server.engine.script = [*FakeTokenizer().encode(text, add_special=False), EOS]
    server.engine.stride = stride


def prompt_of(server: FakeServer) -> str:
    """The prompt of the last request."""
    return FakeTokenizer().decode(server.engine.seen[-1][0], skip_special=False)


def test_a_text(server: FakeServer, claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model="fake", messages=HELLO, max_tokens=8)
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "fake")
    assert answer.id.startswith("msg_")
    assert (answer.stop_reason, answer.stop_sequence) == ("max_tokens", None)
    (block,) = answer.content
    assert block.type == "text"
    assert block.text
    usage, num_prompt = answer.usage, len(server.engine.seen[-1][0])
    assert usage.output_tokens == 8
    assert usage.cache_read_input_tokens == num_prompt // 16 * 16
    assert usage.input_tokens + usage.cache_read_input_tokens == num_prompt
    say(server, "It rains.")
    assert claude.messages.create(model="fake", messages=HELLO, max_tokens=80).stop_reason == "end_turn"


def bare(message: anthropic.types.Message) -> dict[str, Any]:
    """What a message says, without names."""
    plain = message.model_dump(exclude={"id"})
    for block in plain["content"]:
        block.pop("id", None)
        block.pop("parsed_output", None)
    return plain


@pytest.mark.parametrize("stride", [1, 3, 1000])
@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS)
def test_stream_equals_whole(server: FakeServer, claude: anthropic.Anthropic, text: str, stride: int) -> None:
    say(server, text, stride)
    call: dict[str, Any] = {"model": "fake", "messages": HELLO, "max_tokens": 1000, "tools": [TOOL]}
    whole = claude.messages.create(**call)
    with claude.messages.stream(**call) as stream:
        streamed = stream.get_final_message()
    assert bare(streamed) == bare(whole)


@pytest.mark.parametrize("limit", range(1, 90, 4))
def test_stream_equals_whole_wherever_it_is_cut_off(
    server: FakeServer, claude: anthropic.Anthropic, limit: int
) -> None:
    say(server, CALL)
    call: dict[str, Any] = {"model": "fake", "messages": HELLO, "max_tokens": limit, "tools": [TOOL]}
    whole = claude.messages.create(**call)
    with claude.messages.stream(**call) as stream:
        streamed = stream.get_final_message()
    assert bare(streamed) == bare(whole)
    assert whole.stop_reason in ("max_tokens", "tool_use")


def test_the_events(server: FakeServer, http: httpx.Client) -> None:
    say(server, f"<think>hm</think>{CALL}")
    body = {"messages": HELLO, "max_tokens": 1000, "tools": [TOOL], "stream": True}
    answer = http.post("/v1/messages", json=body)
    parts = [part.split("\n") for part in answer.text.strip().split("\n\n")]
    assert all(len(lines) == 2 for lines in parts)
    events = [json.loads(data.removeprefix("data: ")) for _, data in parts]
    assert [name for name, _ in parts] == [f"event: {event['type']}" for event in events]
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    start = events[0]["message"]
    assert (start["content"], start["stop_reason"]) == ([], None)
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    blocks = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert blocks == ["thinking", "text", "tool_use"]
    for index, delta_type in enumerate(("thinking_delta", "text_delta", "input_json_delta")):
        mine = [event for event in events if event.get("index") == index]
        assert mine[0]["type"] == "content_block_start"
        assert mine[-1]["type"] == "content_block_stop"
        assert {event["delta"]["type"] for event in mine[1:-1]} == {delta_type}
    indices = [event["index"] for event in events if "index" in event]
    assert indices == sorted(indices)


def test_calls(server: FakeServer, claude: anthropic.Anthropic) -> None:
    say(server, CALL)
    answer = claude.messages.create(model="fake", messages=HELLO, max_tokens=1000, tools=[TOOL])
    text, call = answer.content
    assert text.type == "text"
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("weather", {"city": "Köln", "n": [1, 22]})
    assert answer.stop_reason == "tool_use"
    history: Any = [
        *HELLO,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]},
    ]
    claude.messages.create(model="fake", messages=history, max_tokens=1, tools=[TOOL])
    assert "tool\nrain" in prompt_of(server)
    assert "'city': 'Köln'" in prompt_of(server)


@pytest.mark.parametrize(
    ("choice", "shaped"),
    [
        ({"type": "auto"}, False),
        ({"type": "any"}, True),
        ({"type": "tool", "name": "weather"}, True),
        ({"type": "none"}, False),
    ],
)
def test_tool_choice(server: FakeServer, claude: anthropic.Anthropic, choice: Any, shaped: bool) -> None:
    say(server, CALL)
    answer = claude.messages.create(model="fake", messages=HELLO, max_tokens=1000, tools=[TOOL], tool_choice=choice)
    shape = server.engine.seen[-1][1].structured_outputs
    assert (shape is not None) is shaped
    assert (answer.stop_reason == "tool_use") is (choice["type"] != "none")
    assert ("weather" in prompt_of(server)) is (choice["type"] != "none")


def test_one_call_where_parallel_ones_are_not_wanted(server: FakeServer, claude: anthropic.Anthropic) -> None:
    say(server, CALL + CALL)
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    answer = claude.messages.create(model="fake", messages=HELLO, max_tokens=1000, tools=[TOOL], tool_choice=choice)
    assert [block.type for block in answer.content].count("tool_use") == 1


def test_the_prompt_is_that_of_the_same_chat(
    server: FakeServer, claude: anthropic.Anthropic, http: httpx.Client
) -> None:
    blocks: Any = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "whatever"},
                {"type": "text", "text": "b"},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Köln"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "text", "text": "c"},
                {"type": "text", "text": "d"},
            ],
        },
    ]
    system: Any = [{"type": "text", "text": "be "}, {"type": "text", "text": "kind"}]
    claude.messages.create(model="fake", system=system, messages=blocks, max_tokens=1)
    call = {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
    chat = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"},
        {"role": "user", "content": "cd"},
    ]
    assert http.post("/v1/chat/completions", json={"messages": chat, "max_tokens": 1}).status_code == 200
    assert server.engine.seen[-2][0] == server.engine.seen[-1][0]


def test_an_error_of_a_tool_is_told(server: FakeServer, claude: anthropic.Anthropic) -> None:
    result: Any = {"type": "tool_result", "tool_use_id": "t", "content": "no such city", "is_error": True}
    claude.messages.create(model="fake", messages=[*HELLO, {"role": "user", "content": [result]}], max_tokens=1)
    assert "tool\nError: no such city" in prompt_of(server)


def test_an_answer_that_has_begun_goes_on(server: FakeServer, claude: anthropic.Anthropic) -> None:
    begun: Any = [*HELLO, {"role": "assistant", "content": "It"}]
    claude.messages.create(model="fake", messages=begun, max_tokens=1)
    assert prompt_of(server).endswith("<|im_start|>assistant\nIt")


def test_stop_sequences(server: FakeServer, claude: anthropic.Anthropic) -> None:
    say(server, "It rains. It rains.")
    answer = claude.messages.create(model="fake", messages=HELLO, max_tokens=99, stop_sequences=["ns", "xyz"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "ns")
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "It rai"


def test_sampling_fields_arrive(server: FakeServer, claude: anthropic.Anthropic) -> None:
    more = {"temperature": 0.25, "top_p": 0.5, "top_k": 7, "seed": 3, "cache_salt": "s"}
    claude.messages.create(model="fake", messages=HELLO, max_tokens=9, metadata={"user_id": "u"}, extra_body=more)
    _, params, options = server.engine.seen[-1]
    assert (params.temperature, params.top_p, params.top_k, params.seed, params.max_tokens) == (0.25, 0.5, 7, 3, 9)
    assert options["cache_salt"] == "s"


def test_what_a_session_holds_is_told(http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 2, "session_id": "s-1"}
    held = {"id": "s-1", "pinned_tokens": 16, "problem": "no room"}
    assert http.post("/v1/messages", json=body).json()["session"] == held
    lines = http.post("/v1/messages", json=body | {"stream": True}).text.splitlines()
    (end,) = [json.loads(line.removeprefix("data: ")) for line in lines if '"message_delta"' in line]
    assert end["session"] == held


def test_thinking(server: FakeServer, claude: anthropic.Anthropic) -> None:
    say(server, THOUGHT)
    answer = claude.messages.create(
        model="fake", messages=HELLO, max_tokens=500, thinking={"type": "enabled", "budget_tokens": 100}
    )
    thought, text = answer.content
    assert thought.type == "thinking"
    assert thought.thinking == "hm, well"
    assert text.type == "text"
    assert text.text == "It rains."
    assert answer.usage.output_tokens_details is not None
    assert 0 < answer.usage.output_tokens_details.thinking_tokens < answer.usage.output_tokens
    spec = server.engine.seen[-1][1].reasoning
    assert spec is not None
    assert spec.budget == 100
    assert "enable_thinking=True" in prompt_of(server)
    claude.messages.create(model="fake", messages=HELLO, max_tokens=500, thinking={"type": "disabled"})
    assert "enable_thinking=False" in prompt_of(server)


class Weather(pydantic.BaseModel):
    """What `parse` reads."""

    city: str


def test_output_format(server: FakeServer, claude: anthropic.Anthropic) -> None:
    say(server, '{"city": "Köln"}')
    answer = claude.messages.parse(model="fake", messages=HELLO, max_tokens=99, output_format=Weather)
    assert answer.parsed_output == Weather(city="Köln")
    shape = server.engine.seen[-1][1].structured_outputs
    assert shape is not None
    assert shape.kind is StructuredKind.JSON_SCHEMA


def test_an_answer_may_fill_the_context(server: FakeServer, claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model="fake", messages=HELLO, max_tokens=100_000)
    assert answer.stop_reason == "model_context_window_exceeded"
    num_cached = answer.usage.cache_read_input_tokens or 0
    assert answer.usage.input_tokens + num_cached + answer.usage.output_tokens == 4096


def test_tokens_are_counted_as_they_are_used(server: FakeServer, claude: anthropic.Anthropic) -> None:
    call: dict[str, Any] = {"model": "fake", "messages": HELLO, "system": "be kind", "tools": [TOOL]}
    counted = claude.messages.count_tokens(**call)
    before = len(server.engine.seen)
    answer = claude.messages.create(**call, max_tokens=1)
    assert len(server.engine.seen) == before + 1
    assert counted.input_tokens == len(server.engine.seen[-1][0])
    assert counted.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


def test_async_client(server: FakeServer) -> None:
    say(server, CALL)

    async def ask() -> None:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client:
            call: dict[str, Any] = {"model": "fake", "messages": HELLO, "max_tokens": 999, "tools": [TOOL]}
            whole = await client.messages.create(**call)
            async with client.messages.stream(**call) as stream:
                texts = [text async for text in stream.text_stream]
                assert bare(await stream.get_final_message()) == bare(whole)
            assert "".join(texts) == "Let me see."
            kinds = [event.type async for event in await client.messages.create(**call, stream=True)]
            assert kinds[0] == "message_start"
            assert kinds[-1] == "message_stop"

    asyncio.run(ask())


def test_a_client_that_leaves_ends_its_message(server: FakeServer, claude: anthropic.Anthropic) -> None:
    server.in_loop(server.engine.gate.clear)
    try:
        with claude.messages.stream(model="fake", messages=HELLO, max_tokens=100) as stream:
            next(iter(stream))
            wait_until(lambda: bool(server.engine.live), "it runs")
        wait_until(lambda: not server.engine.live, "it has ended")
    finally:
        server.in_loop(server.engine.gate.set)


# Errors


def test_errors_have_the_shape_of_this_api(http: httpx.Client, claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(model="fake", messages=HELLO, max_tokens=0)
    assert caught.value.request_id
    answer = http.post("/v1/messages", json={"messages": HELLO, "max_tokens": 0})
    assert answer.json() == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": answer.json()["error"]["message"]},
        "request_id": answer.headers["request-id"],
    }
    assert "max_tokens" in answer.json()["error"]["message"]
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    with pytest.raises(anthropic.NotFoundError, match="not served here"):
        claude.messages.create(model="other", messages=HELLO, max_tokens=1)
    missing = http.get("/v1/messages/none").json()
    assert (missing["type"], missing["error"]["type"]) == ("error", "not_found_error")
    broken = http.post("/v1/messages", content="{")
    assert broken.status_code == 400
    assert broken.json()["error"]["type"] == "invalid_request_error"
    assert "type" not in http.get("/v1/models/none").json()


def test_a_key_is_asked_for(guarded: FakeServer) -> None:
    with anthropic.Anthropic(base_url=guarded.url, api_key="first-key", max_retries=0) as client:
        assert client.messages.create(model="fake", messages=HELLO, max_tokens=1).content
    with anthropic.Anthropic(base_url=guarded.url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError) as caught:
            client.messages.create(model="fake", messages=HELLO, max_tokens=1)
        body: Any = caught.value.body
        assert body["type"] == "error"
        assert body["error"]["type"] == "authentication_error"


def test_a_full_queue(server: FakeServer, claude: anthropic.Anthropic) -> None:
    server.engine.queue_full = True
    try:
        with pytest.raises(anthropic.RateLimitError) as caught:
            claude.messages.create(model="fake", messages=HELLO, max_tokens=1)
    finally:
        server.engine.queue_full = False
    assert caught.value.response.headers["retry-after"]
    body: Any = caught.value.body
    assert body["error"]["type"] == "rate_limit_error"


def test_a_failure_midway(server: FakeServer, claude: anthropic.Anthropic) -> None:
    claude.messages.create(model="fake", messages=HELLO, max_tokens=1)
    server.engine.fail_after[FakeTokenizer().decode(server.engine.seen[-1][0])] = 3
    with pytest.raises(anthropic.InternalServerError):
        claude.messages.create(model="fake", messages=HELLO, max_tokens=9)
    texts = []
    with (
        pytest.raises(anthropic.APIStatusError, match="the row holds NaN"),
        claude.messages.stream(model="fake", messages=HELLO, max_tokens=9) as stream,
    ):
        for text in stream.text_stream:
            texts.append(text)
    assert len(texts) == 3


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (user(), "messages[0].content"),
        (user({"type": "image", "source": {}}), "blocks of type 'image'"),
        (user({"type": "document", "source": {}}), "blocks of type 'document'"),
        (user({"type": "search_result"}), "blocks of type 'search_result'"),
        (user({"type": "redacted_thinking", "data": "x"}), "blocks of type 'redacted_thinking'"),
        (user({"type": "text"}), "messages[0].content[0].text"),
        (user({"type": "text", "text": "x", "colour": "red"}), "messages[0].content[0].colour"),
        (user({"type": "tool_use", "id": "t", "name": "n", "input": {}}), "messages[0].content[0]"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]},
            "messages[0].content[0]",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]}
                ]
            },
            "send their results",
        ),
        (
            user({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}),
            "messages[0].content[0].content[0]",
        ),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools have this name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "none"}}, "tool_choice"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 9, "display": "omitted"}}, "thinking.display"),
        ({"thinking": {"type": "between_tools"}}, "thinking"),
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": ["x" * 100_000]}, "stop_sequences[0]"),
        ({"stop_sequences": ["x"] * 100}, "stop_sequences"),
        ({"messages": HELLO * 5000}, "at most 4096"),
        ({"container": "c"}, "container"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"speed": "fast"}, "speed"),
        ({"inference_geo": "eu"}, "inference_geo"),
        ({"nonsense": 1}, "nonsense"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "4096"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    server: FakeServer, http: httpx.Client, fields: dict[str, Any], words: str
) -> None:
    before = len(server.engine.seen)
    answer = http.post("/v1/messages", json={"messages": HELLO, "max_tokens": 5, **fields})
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]
    assert len(server.engine.seen) == before


def test_thinking_needs_a_model_that_thinks() -> None:
    async def start() -> FakeEngine:
        return FakeEngine()

    with running_server(start) as plain, httpx.Client(base_url=plain.url, timeout=30) as http:
        body: dict[str, Any] = {"messages": HELLO, "max_tokens": 5}
        refused = http.post("/v1/messages", json=body | {"thinking": {"type": "enabled", "budget_tokens": 9}})
        assert refused.status_code == 400
        assert "thinking.budget_tokens" in refused.json()["error"]["message"]
        assert http.post("/v1/messages", json=body | {"thinking": {"type": "disabled"}}).status_code == 200


@pytest.mark.parametrize(
    "text", ['{"a": "x\\"y", "b": [1, 22, {"c": null, "d": "e"}], "f": true, "g": {"h": -1.5e3, "é": "ü"}}', "{}"]
)
def test_an_object_that_is_cut_off_is_read_as_the_client_does(text: str) -> None:
    jiter = pytest.importorskip("jiter")
    for size in range(1, len(text) + 1):
        assert object_so_far(text[:size]) == jiter.from_json(text[:size].encode(), partial_mode=True)
    assert object_so_far("") == {}
    assert object_so_far("[1") == {}
