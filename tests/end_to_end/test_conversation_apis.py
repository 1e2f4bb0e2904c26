"""Responses and Anthropic's messages by their stock clients over real models: one conversation, the same tokens and the
same answer by every API; real calls; kept responses found from any API process."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from tests.end_to_end.conftest import Served, serving
from tests.end_to_end.test_api_processes import family
from tests.real_models import model_path

QUESTION = "What is the capital of France?"
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city"}},
    "required": ["city"],
}


@pytest.fixture(scope="module")
def smollm() -> Iterator[Served]:
    """A small model with a chat template."""
    file = str(model_path("smollm2-135m"))
    with serving(file) as server:
        made = Served("smollm2-135m", file, server)
        yield made
        made.client.close()


@pytest.fixture(scope="module")
def coder() -> Iterator[Served]:
    """A model whose template has a place for tools."""
    file = str(model_path("qwen2.5-coder-0.5b"))
    with serving(file, max_model_len=2048) as server:
        made = Served("qwen2.5-coder-0.5b", file, server)
        yield made
        made.client.close()


def claude(served: Served) -> anthropic.Anthropic:
    """The other stock client."""
    return anthropic.Anthropic(base_url=served.server.url, api_key="none", max_retries=0, timeout=120)


def name_of(served: Served) -> str:
    """What the model is called there."""
    return served.client.models.list().data[0].id


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 0.8, "seed": 7}], ids=["greedy", "seeded"])
def test_every_api_gives_the_same_answer(smollm: Served, options: dict[str, Any]) -> None:
    model, messages = name_of(smollm), [{"role": "user", "content": QUESTION}]
    extra = {name: value for name, value in options.items() if name == "seed"}
    chat: Any = smollm.client.chat.completions.create(
        model=model, messages=messages, max_tokens=24, **options  # type: ignore[arg-type]
    )  # fmt: skip
    expected = chat.choices[0].message.content
    call: dict[str, Any] = {"model": model, "input": QUESTION, "max_output_tokens": 24, "extra_body": extra}
    response = smollm.client.responses.create(**call, temperature=options["temperature"])
    assert response.output_text == expected
    assert response.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    with smollm.client.responses.stream(**call, temperature=options["temperature"]) as events:
        texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == expected
    with claude(smollm) as client:
        message: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": 24, "extra_body": options}
        whole = client.messages.create(**message)
        assert [block.text for block in whole.content if block.type == "text"] == [expected]
        with client.messages.stream(**message) as stream:
            assert "".join(stream.text_stream) == expected
        counted = client.messages.count_tokens(model=model, messages=messages)  # type: ignore[arg-type]
        assert counted.input_tokens == chat.usage.prompt_tokens
    rendered = httpx.post(
        f"{smollm.server.url}/render", json={"url": "/v1/responses", "body": {"input": QUESTION}}, timeout=60
    ).json()["prompts"][0]
    assert rendered["num_tokens"] == chat.usage.prompt_tokens
    assert QUESTION in rendered["text"]


def test_a_chain_finds_its_turns_in_the_cache(smollm: Served) -> None:
    model = name_of(smollm)
    call: dict[str, Any] = {"model": model, "temperature": 0, "max_output_tokens": 24}
    long = "Please answer briefly. " * 20 + QUESTION
    first = smollm.client.responses.create(input=long, **call)
    second = smollm.client.responses.create(input="And of Spain?", previous_response_id=first.id, **call)
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens // 16 * 16 - 16
    items: Any = [
        {"role": "user", "content": long},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And of Spain?"},
    ]
    whole = smollm.client.responses.create(input=items, store=False, **call)
    assert whole.output_text == second.output_text
    assert whole.usage is not None
    assert whole.usage.input_tokens == second.usage.input_tokens
    assert smollm.client.responses.retrieve(second.id).output_text == second.output_text


@pytest.mark.slow
def test_a_response_makes_real_calls(coder: Served) -> None:
    model = name_of(coder)
    tool: Any = {"type": "function", "name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}
    call: dict[str, Any] = {"model": model, "tools": [tool], "temperature": 0, "max_output_tokens": 100}
    asked: Any = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
    first = coder.client.responses.create(input=asked, tool_choice="required", **call)
    (made,) = [item for item in first.output if item.type == "function_call"]
    assert made.name == "get_weather"
    assert "Paris" in made.arguments
    with coder.client.responses.stream(input=asked, tool_choice="required", **call) as stream:
        stream.until_done()
        again = stream.get_final_response()
    assert [item.arguments for item in again.output if item.type == "function_call"] == [made.arguments]
    result: Any = [{"type": "function_call_output", "call_id": made.call_id, "output": "It rains, 12 degrees."}]
    last = coder.client.responses.create(input=result, previous_response_id=first.id, tool_choice="none", **call)
    assert last.status in ("completed", "incomplete")
    assert last.output_text


@pytest.mark.slow
def test_a_message_makes_real_calls(coder: Served) -> None:
    model = name_of(coder)
    tool: Any = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}
    messages: Any = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
    call: dict[str, Any] = {
        "model": model,
        "tools": [tool],
        "tool_choice": {"type": "any"},
        "max_tokens": 100,
        "extra_body": {"temperature": 0},
    }
    with claude(coder) as client:
        first = client.messages.create(messages=messages, **call)
        assert first.stop_reason == "tool_use"
        (made,) = [block for block in first.content if block.type == "tool_use"]
        assert made.name == "get_weather"
        assert "Paris" in str(made.input)
        with client.messages.stream(messages=messages, **call) as stream:
            again = stream.get_final_message()
        assert [block.input for block in again.content if block.type == "tool_use"] == [made.input]
        messages += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": made.id, "content": "It rains."}]},
        ]
        last = client.messages.create(messages=messages, **(call | {"tool_choice": {"type": "none"}}))
        assert [block.text for block in last.content if block.type == "text"]


@pytest.mark.slow
def test_schemas_bind_both(coder: Served) -> None:
    model, asked = name_of(coder), "Name a city and whether it is in France."
    schema: Any = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "in_france": {"type": "boolean"}},
        "required": ["city", "in_france"],
        "additionalProperties": False,
    }
    validate = pytest.importorskip("jsonschema").validate
    text: Any = {"format": {"type": "json_schema", "name": "place", "schema": schema, "strict": True}}
    response = coder.client.responses.create(model=model, input=asked, text=text, temperature=0, max_output_tokens=80)
    validate(json.loads(response.output_text), schema)
    with claude(coder) as client:
        output: Any = {"format": {"type": "json_schema", "schema": schema}}
        message = client.messages.create(
            model=model,
            messages=[{"role": "user", "content": asked}],
            max_tokens=80,
            output_config=output,
            extra_body={"temperature": 0},
        )
        validate(json.loads("".join(block.text for block in message.content if block.type == "text")), schema)


@pytest.mark.slow
def test_a_kept_response_is_found_from_every_process() -> None:
    file = str(model_path("smollm2-135m"))
    with family(file, "--api-key", "one", "--api-key", "two", count=2) as shared:
        mine, other = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        first, second = shared.callers
        made = first.json("POST", "/v1/responses", {"input": QUESTION, "max_output_tokens": 4}, **mine)
        assert second.json("GET", f"/v1/responses/{made['id']}", **mine) == made
        chained = second.json(
            "POST",
            "/v1/responses",
            {"input": "And?", "max_output_tokens": 4, "previous_response_id": made["id"]},
            **mine,
        )
        assert first.json("GET", f"/v1/responses/{chained['id']}", **mine)["previous_response_id"] == made["id"]
        for caller in shared.callers:
            refused = caller.ask("GET", f"/v1/responses/{made['id']}", **other)
            refused.read()
            assert refused.status == 404
        second.json("DELETE", f"/v1/responses/{made['id']}", **mine)
        gone = first.ask("GET", f"/v1/responses/{made['id']}", **mine)
        gone.read()
        assert gone.status == 404
