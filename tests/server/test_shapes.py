"""How requests say what shape an answer must have, and what becomes of it."""

import json
from typing import Any

import httpx
import pytest

from octavo.request.structured import StructuredKind, StructuredSpec
from tests.server.conftest import FakeServer

HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TEXT = json.dumps(SCHEMA)
OBJECT, JSON = StructuredKind.JSON_OBJECT, StructuredKind.JSON_SCHEMA

SPELLINGS: list[tuple[dict[str, Any], StructuredSpec | None]] = [
    ({"response_format": None, "structured_outputs": None, "guided_json": None}, None),
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, StructuredSpec(kind=OBJECT, field="response_format")),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}},
        StructuredSpec(kind=JSON, source=TEXT, strict=True, field="response_format"),
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "description": "d"}}},
        StructuredSpec(kind=JSON, source="{}", field="response_format"),
    ),
    ({"structured_outputs": {"json": SCHEMA}}, StructuredSpec(kind=JSON, source=TEXT)),
    ({"structured_outputs": {"json": TEXT}}, StructuredSpec(kind=JSON, source=TEXT)),
    ({"structured_outputs": {"json": {}}}, StructuredSpec(kind=JSON, source="{}")),
    (
        {"structured_outputs": {"json": SCHEMA, "regex": None, "disable_any_whitespace": True}},
        StructuredSpec(kind=JSON, source=TEXT, compact=True),
    ),
    (
        {"structured_outputs": {"json_object": True, "disable_additional_properties": True}},
        StructuredSpec(kind=OBJECT, closed_objects=True),
    ),
    ({"structured_outputs": {"regex": "a+"}}, StructuredSpec(kind=StructuredKind.REGEX, source="a+")),
    ({"structured_outputs": {"choice": ["a", "b"]}}, StructuredSpec(kind=StructuredKind.CHOICE, choices=("a", "b"))),
    (
        {"structured_outputs": {"grammar": 'root ::= "a"'}},
        StructuredSpec(kind=StructuredKind.GRAMMAR, source='root ::= "a"'),
    ),
    ({"guided_json": SCHEMA}, StructuredSpec(kind=JSON, source=TEXT, field="guided_json")),
    ({"guided_regex": "a+"}, StructuredSpec(kind=StructuredKind.REGEX, source="a+", field="guided_regex")),
    ({"guided_choice": ["a"]}, StructuredSpec(kind=StructuredKind.CHOICE, choices=("a",), field="guided_choice")),
    (
        {"guided_grammar": 'root ::= "a"'},
        StructuredSpec(kind=StructuredKind.GRAMMAR, source='root ::= "a"', field="guided_grammar"),
    ),
]
ENDPOINTS = {"/v1/completions": {"prompt": "hello"}, "/v1/chat/completions": {"messages": HELLO}}


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("fields", "spec"), SPELLINGS)
def test_every_spelling_reaches_the_engine(
    server: FakeServer, http: httpx.Client, path: str, fields: dict[str, Any], spec: StructuredSpec | None
) -> None:
    answer = http.post(path, json=ENDPOINTS[path] | {"max_tokens": 1} | fields)
    assert answer.status_code == 200, answer.text
    assert server.engine.seen[-1][1].structured_outputs == spec


@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_answer_has_one_shape(http: httpx.Client, path: str) -> None:
    fields = {"response_format": {"type": "json_object"}, "guided_regex": "a"}
    answer = http.post(path, json=ENDPOINTS[path] | fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "guided_regex"
    assert "response_format" in answer.json()["error"]["message"]
