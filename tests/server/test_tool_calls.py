"""Tool calls over HTTP, through the stock client, with answers that a script writes."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.request.structured import StructuredKind
from octavo.server.conversation.dialect import Dialects
from tests.server.conftest import FakeServer
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.running import running_server

HELLO: Any = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
TWO_CALLS = (
    'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "n": [1, {"a": "}"}]}}\n</tool_call>'
    '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)
ARGUMENTS = ['{"city": "Köln", "n": [1, {"a": "}"}]}', "{}"]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose model writes calls as Hermes does."""

    async def start() -> FakeEngine:
        return FakeEngine(max_model_len=4096, template="{{ tools }} <tool_call>")

    with running_server(start) as running:
        yield running


def whole(client: openai.OpenAI, **options: Any) -> Any:
    """The one choice of an answer."""
    return client.chat.completions.create(model="fake", messages=HELLO, tools=TOOLS, **options).choices[0]


def streamed(client: openai.OpenAI, **options: Any) -> Any:
    """The same through the client's own accumulation of a stream."""
    with client.chat.completions.stream(model="fake", messages=HELLO, tools=TOOLS, **options) as stream:
        stream.until_done()
        return stream.get_final_completion().choices[0]


@pytest.mark.parametrize("get", [whole, streamed])
def test_calls(server: FakeServer, client: openai.OpenAI, get: Any) -> None:
    server.engine.answer_with(TWO_CALLS)
    choice = get(client)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert [call.function.name for call in choice.message.tool_calls] == ["weather", "now"]
    assert [call.function.arguments for call in choice.message.tool_calls] == ARGUMENTS
    assert all(call.type == "function" for call in choice.message.tool_calls)
    assert len({call.id for call in choice.message.tool_calls}) == 2


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 50, 1000])
def test_deltas_say_who_is_called_once_and_then_only_arguments(
    server: FakeServer, client: openai.OpenAI, stride: int
) -> None:
    server.engine.answer_with(TWO_CALLS, [stride])
    deltas = []
    for chunk in client.chat.completions.create(model="fake", messages=HELLO, tools=TOOLS, stream=True):
        (choice,) = chunk.choices
        deltas += choice.delta.tool_calls or []
        assert choice.delta.content != ""
    for index in (0, 1):
        first, *others = [delta for delta in deltas if delta.index == index]
        assert first.id
        assert first.type == "function"
        assert first.function is not None
        assert first.function.name
        assert all(delta.id is delta.type is None for delta in others)
        assert all(delta.function is not None and delta.function.name is None for delta in others)
        texts = [delta.function.arguments or "" for delta in (first, *others) if delta.function is not None]
        assert "".join(texts) == ARGUMENTS[index]
    if stride == 1:
        assert len(deltas) > 20, "arguments come as they are written"


def test_no_calls_without_tools(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with(TWO_CALLS)
    for options in ({}, {"tools": []}, {"tools": None}, {"tools": TOOLS, "tool_choice": "none"}):
        choice = client.chat.completions.create(model="fake", messages=HELLO, **options).choices[0]  # type: ignore[call-overload]
        assert choice.message.content == TWO_CALLS
        assert choice.message.tool_calls is None
        assert choice.finish_reason == "stop"
        assert "weather" not in FakeTokenizer().decode(server.engine.seen[-1][0])


def test_one_call_where_parallel_ones_are_not_wanted(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with(TWO_CALLS)
    for get in (whole, streamed):
        (call,) = get(client, parallel_tool_calls=False).message.tool_calls
        assert call.function.name == "weather"


def test_an_answer_cut_off_in_a_call_ends_by_length(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with(TWO_CALLS)
    choice = whole(client, max_tokens=70)
    assert choice.finish_reason == "length"
    assert ARGUMENTS[0].startswith(choice.message.tool_calls[0].function.arguments)


def test_text_alone_is_content(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with("no call <tool_cal")
    for get in (whole, streamed):
        choice = get(client)
        assert choice.message.content == "no call <tool_cal"
        assert choice.finish_reason == "stop"
        assert not choice.message.tool_calls


@pytest.mark.parametrize(
    ("choice", "calls", "most"),
    [("required", ["now", "weather"], None), ({"type": "function", "function": {"name": "now"}}, ["now"], 1)],
)
def test_required_calls_are_constrained(
    server: FakeServer, client: openai.OpenAI, choice: Any, calls: list[str], most: int | None
) -> None:
    server.engine.answer_with('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    answer = whole(client, tool_choice=choice)
    assert answer.finish_reason == "tool_calls"
    shape = server.engine.seen[-1][1].structured_outputs
    assert shape is not None
    assert shape.kind is StructuredKind.CALLS
    assert shape.calls is not None
    assert (
        sorted(json.loads(call.begin.split(", ")[0].split("\n")[-1] + "}")["name"] for call in shape.calls.calls)
        == calls
    )
    assert (shape.calls.min_calls, shape.calls.max_calls) == (1, most)
    (now,) = [call for call in shape.calls.calls if '"now"' in call.begin]
    assert json.loads(now.schema)["additionalProperties"] is False, "without parameters it takes no arguments"


def test_strict_tools_are_constrained_from_the_marker_on(server: FakeServer, client: openai.OpenAI) -> None:
    strict: Any = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": SCHEMA}}]
    client.chat.completions.create(model="fake", messages=HELLO, tools=strict)
    shape = server.engine.seen[-1][1].structured_outputs
    assert shape is not None
    assert shape.calls is not None
    assert (shape.calls.trigger, shape.calls.min_calls) == ("<tool_call>", 0)


def test_free_tools_are_not_constrained(server: FakeServer, client: openai.OpenAI) -> None:
    whole(client)
    assert server.engine.seen[-1][1].structured_outputs is None
    assert not server.engine.seen[-1][1].skip_special_tokens


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"structured_outputs": {"regex": "a+"}}, "structured_outputs"),
    ],
)
def test_what_does_not_go_together(http: httpx.Client, options: dict[str, Any], field: str) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": HELLO, "tools": TOOLS} | options)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_calls_or_an_answer_of_a_shape(server: FakeServer, client: openai.OpenAI) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    for given, content in (({"type": "json_object"}, '{"type": "object"}'), (schema, json.dumps(SCHEMA))):
        whole(client, response_format=given)
        shape = server.engine.seen[-1][1].structured_outputs
        assert shape is not None
        assert shape.calls is not None
        assert (shape.calls.content, shape.calls.min_calls, shape.field) == (content, 0, "response_format")
        assert shape.strict is (given is schema)


def test_several_answers_call_each_for_itself(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with(TWO_CALLS)
    answer = client.chat.completions.create(model="fake", messages=HELLO, tools=TOOLS, n=3)
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or []]
    assert len(set(ids)) == 6


def test_a_call_and_its_result_can_be_sent_back(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with(TWO_CALLS)
    message = whole(client).message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "12:00"} for call in message.tool_calls]
    server.engine.answer_with("done")
    history: Any = [*HELLO, message, *results]
    again = client.chat.completions.create(model="fake", messages=history, tools=TOOLS)
    assert again.choices[0].message.content == "done"


@pytest.mark.parametrize("flag", [None, "hermes"])
def test_a_template_without_a_place_for_tools(flag: str | None) -> None:
    async def start() -> FakeEngine:
        return FakeEngine(template="{{ messages }}")

    with running_server(start, ServerConfig(port=0, tool_call_parser=flag)) as running:
        answer = httpx.post(f"{running.url}/v1/chat/completions", json={"messages": HELLO, "tools": TOOLS})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
        assert "--chat-template" in answer.json()["error"]["message"]


def test_a_flag_names_the_format() -> None:
    async def start() -> FakeEngine:
        return FakeEngine(max_model_len=4096, template="{{ tools }} <tool_call>")

    with running_server(start, ServerConfig(port=0, tool_call_parser="mistral")) as running:
        running.engine.answer_with('[TOOL_CALLS]now[ARGS]{"a": 1}')
        answer = httpx.post(f"{running.url}/v1/chat/completions", json={"messages": HELLO, "tools": TOOLS}).json()
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "now", "arguments": '{"a": 1}'}
        assert len(call["id"]) == 9
        assert call["id"].isalnum()


@pytest.mark.parametrize("flag", ["tool_call_parser", "reasoning_parser"])
def test_unknown_formats_are_refused_at_start(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag}='hermez': known parsers are"):
        Dialects(ServerConfig(**{flag: "hermez"}))
