"""What a chat request may say of its template, over HTTP."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo.config import ServerConfig
from tests.server.conftest import FakeServer
from tests.server.fake_engine import BOS, FakeEngine, FakeTokenizer
from tests.server.running import running_server

HELLO: Any = [{"role": "user", "content": "hello"}]
OPEN: Any = [*HELLO, {"role": "assistant", "content": "So far "}]


async def reads_documents() -> FakeEngine:
    return FakeEngine(template="{{ documents }} {{ reasoning_effort }}")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose model's template reads documents and an effort."""
    with running_server(reads_documents) as running:
        yield running


def prompt_of(server: FakeServer) -> str:
    """The newest prompt as text."""
    return FakeTokenizer().decode(server.engine.seen[-1][0], skip_special=False)


def refusal(http: httpx.Client, **fields: Any) -> tuple[int, str | None]:
    answer = http.post("/v1/chat/completions", json={"messages": HELLO} | fields)
    return answer.status_code, answer.json()["error"]["param"]


def test_a_message_is_gone_on_with(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with("and on")
    options: Any = {"model": "fake", "messages": OPEN, "extra_body": {"continue_final_message": True}}
    answer = client.chat.completions.create(**options)
    assert prompt_of(server).endswith("assistant\nSo far ")
    assert answer.choices[0].message.content == "and on"
    options["extra_body"]["echo"] = True
    assert client.chat.completions.create(**options).choices[0].message.content == "So far and on"
    chunks = client.chat.completions.create(**options, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "So far and on"


def test_an_answer_is_not_asked_for(server: FakeServer, http: httpx.Client) -> None:
    body = {"messages": HELLO, "add_generation_prompt": False, "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    assert prompt_of(server).endswith("hello<|im_end|>")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": OPEN, "continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"messages": OPEN, "echo": True}, "echo"),
        (
            {"messages": [*HELLO, {"role": "tool", "content": "x"}], "continue_final_message": True},
            "continue_final_message",
        ),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"add_special_tokens": True}, "add_special_tokens"),
    ],
)
def test_what_cannot_be_honoured(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    assert refusal(http, **fields) == (400, param)


def test_documents_and_effort_reach_a_template_that_reads_them(server: FakeServer, http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 1, "documents": [{"text": "facts"}], "reasoning_effort": "low"}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    assert "documents=[{'text': 'facts'}]" in prompt_of(server)
    assert "reasoning_effort=low" in prompt_of(server)


def test_documents_and_effort_are_refused_where_nobody_reads_them() -> None:
    async def start() -> FakeEngine:
        return FakeEngine()

    with running_server(start) as running, httpx.Client(base_url=running.url) as http:
        assert refusal(http, documents=[{"text": "facts"}]) == (400, "documents")
        assert refusal(http, reasoning_effort="low") == (400, "reasoning_effort")


def test_templates_of_requests_need_trust() -> None:
    with running_server(reads_documents, ServerConfig(port=0, trust_request_chat_template=True)) as running:
        template = "{{ messages }} <tool_call> {{ tools }}"
        tools = [{"type": "function", "function": {"name": "f"}}]
        body = {"messages": HELLO, "chat_template": template, "max_tokens": 1, "tools": tools}
        answer = httpx.post(f"{running.url}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert f"template={template}" in prompt_of(running)


def test_the_prompt_as_text(server: FakeServer, http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 1, "return_prompt_text": True}
    answer = http.post("/v1/chat/completions", json=body).json()
    assert answer["prompt_text"] == prompt_of(server)


def test_one_beginning_on_every_path(server: FakeServer, http: httpx.Client) -> None:
    rendered = http.post("/tokenize", json={"messages": HELLO}).json()["tokens"]
    for path, body in (("/v1/chat/completions", {"messages": HELLO}), ("/v1/completions", {"prompt": rendered})):
        assert http.post(path, json=body | {"max_tokens": 1}).status_code == 200
        assert list(server.engine.seen[-1][0]) == rendered
    assert rendered.count(BOS) == 1


def test_a_stream_in_larger_pieces(server: FakeServer, http: httpx.Client) -> None:
    server.engine.answer_with("abcdefghij")
    body = {"messages": HELLO, "stream": True, "stream_interval": 4, "return_token_ids": True}
    lines = http.post("/v1/chat/completions", json=body).text.split("\n\n")
    chunks = [httpx.Response(200, content=line.removeprefix("data: ")).json() for line in lines[:-2]]
    assert [len(chunk["choices"][0]["token_ids"]) for chunk in chunks] == [1, 4, 4, 2]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "abcdefghij"
    assert refusal(http, stream_interval=4) == (400, "stream_interval")
    assert refusal(http, stream=True, stream_interval=0) == (400, "stream_interval")
