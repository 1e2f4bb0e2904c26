"""POST /v1/chat/completions through the stock client."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.server.conftest import FakeServer
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.running import running_server

HELLO: Any = [{"role": "user", "content": "hello"}]


def test_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=HELLO, max_tokens=8)
    choice = answer.choices[0]
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


@pytest.mark.parametrize("n", [1, 3])
def test_stream_equals_whole(client: openai.OpenAI, n: int) -> None:
    call: dict[str, Any] = {"model": "fake", "messages": HELLO, "max_tokens": 16, "n": n, "logprobs": True, "seed": 2}
    whole = client.chat.completions.create(**call, top_logprobs=2)
    *parts, last = client.chat.completions.create(
        **call, top_logprobs=2, stream=True, stream_options={"include_usage": True}
    )
    assert last.usage == whole.usage
    for choice in whole.choices:
        mine = [part.choices[0] for part in parts if part.choices[0].index == choice.index]
        assert mine[0].delta.role == "assistant"
        assert [part.delta.role for part in mine[1:]] == [None] * (len(mine) - 1)
        assert "".join(part.delta.content or "" for part in mine) == choice.message.content
        assert mine[-1].finish_reason == choice.finish_reason
        tokens = [token for part in mine for token in (part.logprobs.content if part.logprobs else None) or []]
        assert choice.logprobs is not None
        assert tokens == choice.logprobs.content


def test_logprobs_spell_tokens_and_bytes(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="fake", messages=HELLO, max_tokens=3, logprobs=True, top_logprobs=2, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    tokens = logprobs.content or []
    assert b"".join(bytes(token.bytes or []) for token in tokens).decode() == answer.choices[0].message.content
    assert all(token.logprob == -0.5 and len(token.top_logprobs) == 2 for token in tokens)
    assert all(token.top_logprobs[0].token == token.token for token in tokens)


def test_max_tokens_defaults_to_the_rest_of_the_context(server: FakeServer, client: openai.OpenAI) -> None:
    call: Any = {"model": "fake", "messages": HELLO}
    answers = [
        client.chat.completions.create(**call),
        client.chat.completions.create(**call, max_tokens=None),
    ]
    for answer in answers:
        assert answer.usage is not None
        assert answer.usage.total_tokens == server.engine.info.max_model_len
        assert answer.choices[0].finish_reason == "length"


def test_max_completion_tokens_wins(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=HELLO, max_completion_tokens=3, max_tokens=7)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize(
    "content",
    ["same text", [{"type": "text", "text": "same "}, {"type": "text", "text": "text"}]],
    ids=["text", "parts"],
)
def test_text_parts(server: FakeServer, client: openai.OpenAI, content: Any) -> None:
    client.chat.completions.create(model="fake", messages=[{"role": "user", "content": content}], max_tokens=1)
    assert "same text" in FakeTokenizer().decode(server.engine.seen[-1][0])


def test_developer_is_system(server: FakeServer, client: openai.OpenAI) -> None:
    prompts = []
    for role in ("developer", "system"):
        messages: Any = [{"role": role, "content": "be brief"}, *HELLO]
        client.chat.completions.create(model="fake", messages=messages, max_tokens=1)
        prompts.append(server.engine.seen[-1][0])
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize("arguments", [None, "", "{}", {}])
def test_a_history_with_tool_calls_is_rendered(server: FakeServer, http: httpx.Client, arguments: object) -> None:
    call = {"id": "c0", "type": "function", "function": {"name": "now", "arguments": arguments}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": "12:00"},
    ]
    answer = http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
    assert answer.status_code == 200
    assert "{'name': 'now', 'arguments': {}}" in FakeTokenizer().decode(server.engine.seen[-1][0])


def test_tool_arguments_that_are_no_object_are_refused(http: httpx.Client) -> None:
    call = {"id": "c0", "type": "function", "function": {"name": "now", "arguments": "not json"}}
    answer = http.post("/v1/chat/completions", json={"messages": [*HELLO, {"role": "assistant", "tool_calls": [call]}]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


def test_an_own_answer_can_be_sent_back(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="fake", messages=HELLO, max_tokens=3)
    history: Any = [*HELLO, first.choices[0].message, {"role": "user", "content": "go on"}]
    assert client.chat.completions.create(model="fake", messages=history, max_tokens=3).choices[0].message.content
    messages: Any = [{"role": "assistant", "content": "hi", "tool_calls": []}]
    assert client.chat.completions.create(model="fake", messages=messages, max_tokens=1)


def test_template_variables(server: FakeServer, http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 1, "chat_template_kwargs": {"mood": "merry"}}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    assert "mood=merry" in FakeTokenizer().decode(server.engine.seen[-1][0])


def test_neutral_values_change_nothing(http: httpx.Client) -> None:
    plain = {"messages": HELLO, "max_tokens": 8, "seed": 1}
    neutral = {
        "temperature": 0.5,
        "top_p": 1,
        "top_k": 0,
        "min_p": 0,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "repetition_penalty": 1,
        "stop": [],
        "logit_bias": {},
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "structured_outputs": None,
        "guided_json": None,
        "include_reasoning": True,
        "thinking_token_budget": -1,
        "stream_interval": 1,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "echo": False,
        "documents": [],
        "chat_template_kwargs": {},
        "add_special_tokens": False,
        "functions": [],
        "function_call": "auto",
        "kv_transfer_params": {},
        "service_tier": "auto",
        "store": False,
        "metadata": {"a": "b"},
        "user": "me",
        "safety_identifier": "x",
        "modalities": ["text"],
        "parallel_tool_calls": True,
        "priority": 0,
        "n": 1,
        "stream": False,
    }
    absent = {"tools": None, "tool_choice": "auto", "documents": None}
    bodies = (plain, plain | neutral, plain | absent)
    answers = [http.post("/v1/chat/completions", json=body).json() for body in bodies]
    assert answers[0]["choices"] == answers[1]["choices"] == answers[2]["choices"]
    assert answers[0]["usage"]["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"]


def test_chat_equals_a_completion_of_the_rendered_prompt(client: openai.OpenAI, http: httpx.Client) -> None:
    ids = http.post("/tokenize", json={"messages": HELLO}).json()["tokens"]
    chat = client.chat.completions.create(model="fake", messages=HELLO, max_tokens=12, temperature=0)
    raw = client.completions.create(model="fake", prompt=ids, max_tokens=12, temperature=0)
    assert chat.choices[0].message.content == raw.choices[0].text


def test_prompt_facts_beside_the_choices(http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 2, "return_token_ids": True, "prompt_logprobs": 0}
    answer = http.post("/v1/chat/completions", json=body).json()
    ids = http.post("/tokenize", json={"messages": HELLO}).json()["tokens"]
    assert answer["prompt_token_ids"] == answer["choices"][0]["prompt_token_ids"] == ids
    assert len(answer["choices"][0]["token_ids"]) == 2
    assert [row is None for row in answer["prompt_logprobs"]] == [True] + [False] * (len(ids) - 1)


@pytest.fixture(scope="module")
def speechless() -> Iterator[str]:
    """A server whose model has no chat template."""

    async def start() -> FakeEngine:
        return FakeEngine(chat=False)

    with running_server(start) as running:
        yield running.url


def test_a_model_without_template_refuses_to_chat(speechless: str) -> None:
    answer = httpx.post(f"{speechless}/v1/chat/completions", json={"messages": HELLO})
    assert answer.status_code == 400
    assert (
        "no chat template: use /v1/completions, or start the server with --chat-template"
        in answer.json()["error"]["message"]
    )
    assert httpx.post(f"{speechless}/v1/completions", json={"prompt": "x"}).status_code == 200
