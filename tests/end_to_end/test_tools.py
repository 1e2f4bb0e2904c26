"""Calls, answers of a given shape and text filled in, by a real model over HTTP."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from octavo import AsyncLLM
from tests.end_to_end.conftest import serving
from tests.real_models import model_path
from tests.server.running import RunningServer

ASK: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ZONE = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": CITY}},
    {"type": "function", "function": {"name": "get_time", "description": "Time of a zone", "parameters": ZONE}},
]


@pytest.fixture(scope="module")
def coder() -> Iterator[RunningServer[AsyncLLM]]:
    """Qwen2.5-Coder, which answers with bare objects where its template asks for tags."""
    with serving(str(model_path("qwen2.5-coder-0.5b")), max_model_len=1024) as server:
        yield server


@pytest.fixture
def client(coder: RunningServer[AsyncLLM]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{coder.url}/v1", api_key="none", max_retries=0, timeout=120) as made:
        yield made


def ask(client: openai.OpenAI, **options: Any) -> Any:
    """One greedy choice."""
    call: dict[str, Any] = {"messages": ASK, "temperature": 0, "max_tokens": 80} | options
    return client.chat.completions.create(model=client.models.list().data[0].id, **call).choices[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ("auto", "get_weather"),
        ("required", "get_weather"),
        ({"type": "function", "function": {"name": "get_time"}}, "get_time"),
    ],
)
def test_calls(client: openai.OpenAI, choice: Any, name: str) -> None:
    answer = ask(client, tools=TOOLS, tool_choice=choice)
    (call,) = answer.message.tool_calls
    assert call.function.name == name
    arguments = json.loads(call.function.arguments)
    assert "Paris" in next(iter(arguments.values()))
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    chunks = list(ask_streamed(client, choice))
    assert "".join(chunk.function.arguments for chunk in chunks) == call.function.arguments


def ask_streamed(client: openai.OpenAI, choice: Any) -> Iterator[Any]:
    """The deltas of calls."""
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=ASK,
        tools=TOOLS,
        tool_choice=choice,
        temperature=0,
        max_tokens=80,
        stream=True,
    )
    for chunk in stream:
        yield from chunk.choices[0].delta.tool_calls or []


@pytest.mark.slow
def test_no_call_where_none_is_wanted(client: openai.OpenAI) -> None:
    assert ask(client, tools=TOOLS, tool_choice="none", max_tokens=16).message.tool_calls is None
    haiku = [{"role": "user", "content": "Write a haiku about rain."}]
    assert ask(client, tools=TOOLS, messages=haiku).message.content


@pytest.mark.slow
def test_a_result_is_answered(client: openai.OpenAI) -> None:
    asked = ask(client, tools=TOOLS).message
    result = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": '{"weather": "rain", "celsius": 7}'}
    answer = ask(client, messages=[*ASK, asked, result], tools=TOOLS, tool_choice="none")
    assert answer.finish_reason == "stop"
    assert "rain" in answer.message.content


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


@pytest.mark.slow
def test_an_answer_is_parsed_into_a_model(client: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    messages: Any = [{"role": "user", "content": "Ada is 36 years old. Give name and age as JSON."}]
    answer = client.chat.completions.parse(model=model, messages=messages, response_format=Person, temperature=0)
    assert answer.choices[0].message.parsed == Person(name="Ada", age=36)


@pytest.mark.slow
def test_the_middle_is_filled_in(client: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    prompt, suffix = "def fib(n):\n    if n < 2:\n        return n\n", "\n\nprint(fib(10))\n"
    answer = client.completions.create(model=model, prompt=prompt, suffix=suffix, temperature=0, max_tokens=48)
    assert "fib(n-1) + fib(n-2)" in answer.choices[0].text
    assert answer.choices[0].finish_reason == "stop"
