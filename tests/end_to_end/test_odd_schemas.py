"""Schemas that clients send and that break templates or compilers: in answers and in tools, with real templates."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from octavo import AsyncLLM
from octavo.errors import InvalidRequestError
from octavo.text.template import ChatTemplate
from tests.end_to_end.conftest import serving
from tests.end_to_end.test_constrained_calls import TURNS
from tests.server.running import RunningServer
from tests.server.test_refusals import check_error
from tests.text import golden

ODD = 'quotes " and \\ and\n</tool_call> {{ messages }} {% raw %} [grammar] ::= é日本\x7f'


def whole(**properties: Any) -> dict[str, Any]:
    """An object that must hold all of it."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SCHEMAS: dict[str, Any] = {
    "integer ranges": whole(a={"type": "integer", "minimum": -3, "maximum": 12}, b={"type": "integer", "minimum": 0}),
    "no type": whole(a={"description": "anything"}, b={"enum": [1]}),
    "a list of types": whole(a={"type": ["string", "null"], "maxLength": 3}),
    "const": whole(a={"const": {"b": [1, None, 'x"']}}),
    "an enum of all kinds": whole(a={"enum": ["x", 1, None, True, 2.5, [], {}]}),
    "anyOf": whole(a={"anyOf": [{"type": "boolean"}, whole(b={"const": 1})]}),
    "allOf": whole(a={"allOf": [{"type": "integer"}, {"maximum": 4}, {"minimum": 4}]}),
    "recursion": {
        **whole(a={"$ref": "#/$defs/n"}),
        "$defs": {"n": {"anyOf": [{"type": "null"}, whole(n={"$ref": "#/$defs/n"})]}},
    },
    "formats": whole(a={"type": "string", "format": "date"}, b={"type": "string", "format": "ipv4"}),
    "exactly two": whole(
        names={"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 2, "maxItems": 2}
    ),
    "odd descriptions": {
        **whole(a={"type": "boolean", "description": ODD, "title": ODD, "examples": [ODD], "default": ODD}),
        "description": ODD,
    },
    "odd names": whole(**{'"': {"const": 1}, "\\": {"const": 2}, "日 本": {"const": 3}, "</tool_call>": {"const": 4}}),
    "nothing asked": {},
    "no properties": {"type": "object", "properties": {}},
    "no parameters at all": None,
}
REFUSED: dict[str, tuple[Any, str]] = {
    "a keyword that is not enforced": (whole(a={"contains": {"const": 1}}), "contains"),
    "a keyword that there is not": (whole(a={"minItem": 3}), "minItem"),
    "a schema that is a text": ("string", "schema"),
    "a reference to nowhere": (whole(a={"$ref": "#/$defs/none"}), "$defs/none"),
    "a reference to the network": (whole(a={"$ref": "http://127.0.0.1/x.json"}), "$ref"),
    "what nothing can satisfy": (whole(a=False), "no value"),
}


@pytest.fixture(scope="module")
def model(tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    with serving(tiny_file, chat_template=TURNS, max_model_len=1500) as server:
        yield server


def answer_to(model: RunningServer[AsyncLLM], **body: Any) -> httpx.Response:
    more = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 900, "temperature": 0.7, "seed": 2}
    lean = {str(ord(mark)): 4 for mark in '"}]'}  # random answers are long where a schema has no bound
    return httpx.post(f"{model.url}/v1/chat/completions", json=more | {"logit_bias": lean} | body, timeout=60)


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_answer_of_an_odd_schema(model: RunningServer[AsyncLLM], name: str) -> None:
    schema = {} if SCHEMAS[name] is None else SCHEMAS[name]
    shape = {"type": "json_schema", "json_schema": {"name": "x", "description": ODD, "schema": schema}}
    answer = answer_to(model, response_format=shape)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_call_of_an_odd_schema(model: RunningServer[AsyncLLM], name: str) -> None:
    schema = SCHEMAS[name]
    function = {"name": "f", "description": ODD, "parameters": schema}
    function = {key: value for key, value in function.items() if value is not None}
    tools = [{"type": "function", "function": function}]
    answer = answer_to(model, tools=tools, tool_choice="required", parallel_tool_calls=False)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), schema or {"type": "object"})
    loose = answer_to(model, tools=tools, max_tokens=2)
    assert loose.status_code == 200, loose.text


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_enforced_is_refused_by_name(model: RunningServer[AsyncLLM], name: str) -> None:
    schema, named = REFUSED[name]
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    error = check_error(answer_to(model, response_format=shape), 400)
    assert named in error["message"] and (error["param"] or "").startswith("response_format")
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    error = check_error(answer_to(model, tools=tools, tool_choice="required"), 400)
    assert (error["param"] or "").startswith("tool"), error
    assert answer_to(model, max_tokens=1).status_code == 200


REAL = {row["template_name"]: row for row in golden.rows("chat_templates") if row["tools"]}


@pytest.mark.parametrize("template", REAL)
def test_real_templates_write_odd_tools(template: str) -> None:
    """What a template itself refuses is told as the client's fault, and nothing else is raised."""
    row = REAL[template]
    variables = dict(row["variables"])
    made = ChatTemplate(row["template"], bos_token=variables.pop("bos_token"), eos_token=variables.pop("eos_token"))
    written = 0
    for schema in SCHEMAS.values():
        function = {"name": "f", "description": ODD} | ({} if schema is None else {"parameters": schema})
        tools = [{"type": "function", "function": function}]
        try:
            text = made.render([{"role": "user", "content": "hello"}], tools=tools, variables=variables)
        except InvalidRequestError:
            continue
        written += "hello" in text
    assert written == len(SCHEMAS)
