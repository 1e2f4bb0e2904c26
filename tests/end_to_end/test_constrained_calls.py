"""A model with random weights, which would never call or think by itself, does both where it must."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from octavo import AsyncLLM
from tests.end_to_end.conftest import serving
from tests.server.running import RunningServer

TURNS = (
    "{% for t in tools or [] %}<tool_call>{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = TURNS.replace("assistant\n{%", "assistant\n{{ '<think>' if thinks else '' }}{%") + "{# </think> #}"
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
SCHEMA = {
    "type": "object",
    "properties": {"n": DIGIT, "who": {"type": ["string", "null"], "enum": ['a"b}', None]}, "any": {"const": "ü"}},
    "required": ["n", "who", "any"],
    "additionalProperties": False,
}
ODD = 'quotes " and \\ and\n</tool_call>'
TOOLS = [
    {"type": "function", "function": {"name": name, "description": ODD, "parameters": SCHEMA}}
    for name in ("first", "second")
]
NAMED = {"type": "function", "function": {"name": "second"}}


@pytest.fixture(scope="module", params=[TURNS, THINKING], ids=["calls", "thinks"])
def model(request: pytest.FixtureRequest, tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    """The tiny model under a template with tools, and under one that thinks, too."""
    with serving(tiny_file, chat_template=request.param) as server:
        yield server


def body(**options: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 300, "temperature": 1.5} | options


def calls_of(url: str, request: dict[str, Any]) -> tuple[list[tuple[str, str]], str | None]:
    """Names and arguments, and why the answer ended; of a stream added up."""
    answer = httpx.post(f"{url}/v1/chat/completions", json=request, timeout=60)
    assert answer.status_code == 200, answer.text
    if not request.get("stream"):
        (choice,) = answer.json()["choices"]
        calls = [call["function"] for call in choice["message"].get("tool_calls", [])]
        return [(call["name"], call["arguments"]) for call in calls], choice["finish_reason"]
    chunks = [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n")[:-2]]
    made: dict[int, list[str]] = {}
    for delta in [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]:
        called = made.setdefault(delta["index"], [delta["function"].get("name", ""), ""])
        called[1] += delta["function"]["arguments"]
    return [(name, arguments) for name, arguments in made.values()], chunks[-1]["choices"][0]["finish_reason"]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_whoever_must_call_does(model: RunningServer[AsyncLLM], choice: Any, seed: int) -> None:
    request = body(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, seed=seed)
    whole, streamed = (calls_of(model.url, request | {"stream": stream}) for stream in (False, True))
    assert whole == streamed
    ((name, text),), reason = whole
    assert reason == "tool_calls"
    assert name == "second" or choice == "required"
    arguments = json.loads(text)
    assert set(arguments) == {"n", "who", "any"}
    assert arguments["n"] in range(10)
    assert arguments["who"] in ('a"b}', None)
    assert arguments["any"] == "ü"


def test_whoever_may_call_or_answer_in_json_does_one_of_them(model: RunningServer[AsyncLLM]) -> None:
    content = {"type": "object", "properties": {"is": DIGIT}, "required": ["is"], "additionalProperties": False}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": content, "strict": True}}
    request = body(tools=TOOLS, response_format=shape, parallel_tool_calls=False, n=16, seed=4)
    answer = httpx.post(f"{model.url}/v1/chat/completions", json=request, timeout=60)
    assert answer.status_code == 200, answer.text
    reasons = set()
    for choice in answer.json()["choices"]:
        reasons.add(choice["finish_reason"])
        if choice["finish_reason"] == "tool_calls":
            (call,) = choice["message"]["tool_calls"]
            assert json.loads(call["function"]["arguments"])["n"] in range(10)
        elif choice["finish_reason"] == "stop":
            assert set(json.loads(choice["message"]["content"])) == {"is"}
        else:
            assert choice["message"]["content"] is None, "it was still thinking"
    assert {"stop", "tool_calls"} <= reasons, "a random model does now this, now that"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_shape_stands_behind_the_reasoning(tiny_file: str, seed: int) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    request = body(response_format=shape, thinking_token_budget=9, seed=seed, chat_template_kwargs={"thinks": True})
    with serving(tiny_file, chat_template=THINKING) as server:
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=request, timeout=60)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert set(json.loads(choice["message"]["content"])) == {"n", "who", "any"}
    assert choice["message"]["reasoning"]
    assert 9 < answer.json()["usage"]["completion_tokens_details"]["reasoning_tokens"] < 40
    assert choice["finish_reason"] == "stop"
