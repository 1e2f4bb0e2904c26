"""However the tokens of an answer come, a stream, a whole answer and the parser on the whole text say the same."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.server.conversation.message import message_of
from octavo.server.reasoning.answer import answer_parser
from octavo.server.reasoning.registry import reasoning_family
from octavo.server.tools.registry import tool_family
from octavo.server.tools.tool import Tool
from tests.effort import times
from tests.server.conftest import FakeServer
from tests.server.fake_engine import FakeEngine
from tests.server.running import running_server

PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        '{"name": "add", "arguments": {"a": 1, "b": "}"}}',
        '{"name": "add", ',
        '"arguments": {"a": "</tool_call>", "ü": [1, {}]}}',
        "```json\n",
        "```",
        "Let me see. ",
        "the DEF ha 😀",
        "\n",
        " ",
        "<tool",
        "{",
    ]
)
TOOLS = [{"type": "function", "function": {"name": "add"}}]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose model thinks in tags and calls as Hermes does."""

    async def start() -> FakeEngine:
        return FakeEngine(max_model_len=4096, template="{{ tools }} <tool_call> <think></think>")

    with running_server(start) as running:
        yield running


def plain(message: dict[str, Any]) -> tuple[str, str, list[tuple[str, str]]]:
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    return message.get("content") or "", message.get("reasoning") or "", calls


def parsed(text: str) -> tuple[str, str, list[tuple[str, str]]]:
    """What the parser says of the whole text."""
    parser = answer_parser(reasoning_family("deepseek_r1"), tool_family("hermes"), [Tool("add")])
    made = message_of(parser.feed(text) + parser.finish())
    return made.content, made.reasoning, [(call.name or "", call.arguments) for call in made.calls]


def added_up(chunks: list[dict[str, Any]]) -> tuple[str, str, list[tuple[str, str]]]:
    """What the deltas of a stream add up to."""
    calls: dict[int, list[str]] = {}
    texts = {"content": "", "reasoning": ""}
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        for name in texts:
            texts[name] += delta.get(name, "")
        for call in delta.get("tool_calls", []):
            if "id" in call:
                calls[call["index"]] = [call["function"]["name"], ""]
            calls[call["index"]][1] += call["function"]["arguments"]
    return texts["content"], texts["reasoning"], [(name, arguments) for name, arguments in calls.values()]


@settings(max_examples=times(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(PIECES, min_size=1, max_size=10).map("".join),
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=4),
)
def test_every_chunking(server: FakeServer, http: httpx.Client, text: str, cuts: list[int]) -> None:
    server.engine.answer_with(text, cuts)
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": TOOLS,
        "return_token_ids": True,
        "logprobs": True,
        "max_tokens": 1000,
    }
    whole = http.post("/v1/chat/completions", json=body).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    lines = http.post("/v1/chat/completions", json=body | options).text.split("\n\n")
    *chunks, last = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    (choice,) = whole["choices"]
    assert plain(choice["message"]) == added_up(chunks) == parsed(text)
    assert choice["finish_reason"] == chunks[-1]["choices"][0]["finish_reason"]
    assert choice["finish_reason"] == ("tool_calls" if choice["message"].get("tool_calls") else "stop")
    server.engine.cuts = (1,)
    assert last["usage"] == whole["usage"] == http.post("/v1/chat/completions", json=body).json()["usage"]
    assert [i for chunk in chunks for i in chunk["choices"][0]["token_ids"]] == choice["token_ids"]
    scores = [entry for chunk in chunks for entry in chunk["choices"][0]["logprobs"]["content"]]
    assert scores == choice["logprobs"]["content"]
    assert len(scores) == len(choice["token_ids"])
    for chunk in chunks[:-1]:
        assert set(chunk["choices"][0]["delta"]) - {"role"}, "no chunk is empty"
