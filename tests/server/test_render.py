"""/render, /tokenize and /detokenize say what the other endpoints do."""

from typing import Any

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.server.native.render import RenderBody
from tests.server.conftest import FakeServer, fake
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.running import running_server

HELLO: Any = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
FUNCTION: Any = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
TOOL: Any = {"type": "function", "function": FUNCTION}


@pytest.fixture(scope="module")
def server() -> Any:
    """A server whose model calls."""

    async def start() -> FakeEngine:
        return FakeEngine(template="{{ tools }} <tool_call>")

    with running_server(start) as running:
        yield running


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 3, "tools": [TOOL], "seed": 1}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 3, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/completions", {"prompt": "once", "max_tokens": 3, "temperature": 0}),
    ("/v1/completions", {"prompt": ["once", "twice"], "max_tokens": 3, "stop": ["x"], "logit_bias": {"5": 1}}),
    ("/v1/responses", {"input": "hello", "instructions": "be kind", "max_output_tokens": 3, "top_logprobs": 2}),
    ("/v1/messages", {"messages": HELLO[1:], "system": "be kind", "max_tokens": 3, "top_k": 7}),
]


@pytest.mark.parametrize(("url", "body"), REQUESTS)
def test_what_is_rendered_is_what_the_engine_gets(
    server: FakeServer, http: httpx.Client, url: str, body: dict[str, Any]
) -> None:
    before = len(server.engine.seen)
    rendered = http.post("/render", json={"url": url, "body": body | {"seed": 5}}).json()
    drawn = server.engine.num_generated
    assert http.post(url, json=body | {"seed": 5}).status_code == 200
    assert server.engine.num_generated > drawn
    asked = server.engine.seen[-len(rendered["prompts"]) :]
    assert len(server.engine.seen) == before + 2 * len(asked), "each is checked twice and run once"
    assert [prompt["token_ids"] for prompt in rendered["prompts"]] == [list(ids) for ids, _, _ in asked]
    for prompt in rendered["prompts"]:
        assert prompt["num_tokens"] == len(prompt["token_ids"])
        assert prompt["text"] == FakeTokenizer().decode(prompt["token_ids"], skip_special=False)
        back = http.post("/detokenize", json={"tokens": prompt["token_ids"]}).json()
        assert back["prompt"] == prompt["text"]
    params = asked[0][1]
    assert rendered["sampling_params"]["max_tokens"] == params.max_tokens == 3
    assert rendered["sampling_params"].get("temperature", 1.0) == params.temperature
    assert ("structured_outputs" in rendered["sampling_params"]) is (params.structured_outputs is not None)


def test_all_agree_on_one_conversation(http: httpx.Client) -> None:
    """A chat, its rendered prompt given to completions, the same as a response and as a message, and /tokenize."""
    options = {"temperature": 0, "max_tokens": 8}
    chat = {"messages": HELLO, **options}
    prompt = http.post("/render", json={"url": "/v1/chat/completions", "body": chat}).json()["prompts"][0]
    said = http.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]["content"]
    completion = http.post("/v1/completions", json={"prompt": prompt["token_ids"], **options}).json()
    assert completion["choices"][0]["text"] == said
    others = [
        ("/v1/responses", {"input": HELLO, "temperature": 0, "max_output_tokens": 8}),
        ("/v1/messages", {"messages": HELLO, **options}),
        ("/v1/messages", {"system": "be kind", "messages": HELLO[1:], **options}),
    ]
    for url, body in others:
        assert http.post("/render", json={"url": url, "body": body}).json()["prompts"][0] == prompt
    tokenized = http.post("/tokenize", json={"messages": HELLO}).json()
    assert (tokenized["tokens"], tokenized["count"]) == (prompt["token_ids"], prompt["num_tokens"])
    encoded = http.post(
        "/tokenize", json={"prompt": prompt["text"], "add_special_tokens": False, "parse_special_tokens": True}
    ).json()
    assert encoded["tokens"] == prompt["token_ids"]


@pytest.mark.parametrize("choice", [None, "auto", "required", "none"])
def test_tools_are_tokenized_as_a_chat_has_them(http: httpx.Client, choice: str | None) -> None:
    chat = {"messages": HELLO, "tools": [TOOL], "tool_choice": choice}
    prompt = http.post("/render", json={"url": "/v1/chat/completions", "body": chat}).json()["prompts"][0]
    assert http.post("/tokenize", json=chat).json()["tokens"] == prompt["token_ids"]
    plain = http.post("/tokenize", json={"messages": HELLO}).json()["tokens"]
    assert (prompt["token_ids"] == plain) is (choice == "none")
    flat = {"type": "function", **FUNCTION}
    response = {"input": HELLO, "tools": [flat], "tool_choice": choice}
    rendered = http.post("/render", json={"url": "/v1/responses", "body": response}).json()
    assert rendered["prompts"][0] == prompt


def test_an_open_message_is_tokenized_open(http: httpx.Client) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "It"}]
    chat = {"messages": begun, "continue_final_message": True}
    prompt = http.post("/render", json={"url": "/v1/chat/completions", "body": chat}).json()["prompts"][0]
    assert http.post("/tokenize", json=chat).json()["tokens"] == prompt["token_ids"]
    message = {"messages": begun, "max_tokens": 5}
    assert http.post("/render", json={"url": "/v1/messages", "body": message}).json()["prompts"][0] == prompt


@pytest.mark.parametrize(
    ("url", "body", "param"),
    [
        ("/v1/chat/completions", {"messages": HELLO, "temperature": -1}, "temperature"),
        ("/v1/chat/completions", {}, "messages"),
        ("/v1/completions", {"prompt": "x", "nonsense": 1}, "nonsense"),
        ("/v1/completions", {"prompt": [99999]}, "prompt"),
        ("/v1/completions", {"prompt": "x", "logit_bias": {"99999": 1}}, "logit_bias"),
        ("/v1/responses", {"input": "x", "background": True}, "background"),
        ("/v1/responses", {"input": "x" * 600}, "input"),
        ("/v1/messages", {"messages": HELLO}, "max_tokens"),
        ("/v1/models", {}, "url"),
    ],
)
def test_what_is_refused_there_is_refused_here(http: httpx.Client, url: str, body: dict[str, Any], param: str) -> None:
    answer = http.post("/render", json={"url": url, "body": body})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    if param != "url" and url != "/v1/messages":
        assert http.post(url, json=body).json()["error"] == answer.json()["error"]


def test_models_that_are_not_served(http: httpx.Client) -> None:
    for url, body in REQUESTS:
        answer = http.post("/render", json={"url": url, "body": body | {"model": "other"}})
        assert answer.status_code == 404


def test_every_url_is_tried() -> None:
    urls = RenderBody.model_json_schema()["properties"]["url"]["enum"]
    assert {url for url, _ in REQUESTS} == set(urls)


@pytest.mark.parametrize("field", ["tools", "tool_choice", "documents", "continue_final_message", "reasoning_effort"])
def test_fields_of_a_conversation_have_no_effect_on_a_text(http: httpx.Client, field: str) -> None:
    value: Any = {"tools": [TOOL], "documents": [{"text": "x"}], "continue_final_message": True}.get(field, "none")
    answer = http.post("/tokenize", json={"prompt": "x", field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_rendering_spends_no_tokens() -> None:
    with (
        running_server(fake, ServerConfig(port=0, key_tokens_per_minute=30)) as limited,
        httpx.Client(base_url=limited.url, timeout=30) as http,
    ):
        body = {"prompt": "x" * 20, "max_tokens": 2}
        for _ in range(5):
            assert http.post("/render", json={"url": "/v1/completions", "body": body}).status_code == 200
        assert http.post("/v1/completions", json=body).status_code == 200
        assert http.post("/v1/completions", json=body).status_code == 429
