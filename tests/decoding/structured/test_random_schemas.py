"""Random schemas, random answers under their masks, and an independent judge. No schema makes a crash or a dead end."""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from tests.decoding.structured.schemas import SCHEMAS
from tests.decoding.structured.walks import BACKEND, END, exact_json, schema_spec, walk
from tests.effort import times

CASES = [
    {
        "type": "object",
        "properties": {"s": {"type": "string", "maxLength": 12}, "n": {"type": "integer"}},
        "required": ["s"],
    },
    {"type": "array", "items": {"enum": ["a", "日本", 1, None]}, "minItems": 2, "maxItems": 4},
    {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "v": {"type": "number", "minimum": 0},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                },
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    },
    {"type": "object", "additionalProperties": {"type": "string", "format": "date"}, "minProperties": 1},
    {"anyOf": [{"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"}, {"type": "null"}]},
]


def judge(schema: Any) -> jsonschema.Draft202012Validator:
    """With exact decimals on both sides: in float64, 0.3 is no multiple of 0.1."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(exact, format_checker=checker)


def answers(schema: Any, seeds: range) -> int:
    """How many of the random answers came to an end; each of these is judged."""
    grammar, validator, whole = BACKEND.compile(schema_spec(schema)), judge(schema), 0
    for seed in seeds:
        answer = walk(grammar.matcher((END,)), np.random.default_rng(seed))
        if answer.is_whole:
            whole += 1
            check(validator, answer.text)
    return whole


def check(validator: jsonschema.Draft202012Validator, text: str) -> None:
    try:
        problems = list(validator.iter_errors(exact_json(text)))
    except (InvalidOperation, RecursionError):  # a number of a hundred digits; a schema that refers to itself at once
        json.loads(text)
        return
    assert not problems, (text, problems[0].message, validator.schema)


def check_answers_or_refusal(schema: Any, seeds: range) -> None:
    try:
        answers(schema, seeds)
    except InvalidRequestError as refused:
        assert refused.problem


@settings(max_examples=times(75), suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS, seed=st.integers(0, 10**6))
def test_random_schemas(schema: Any, seed: int) -> None:
    check_answers_or_refusal(schema, range(seed, seed + 2))


@pytest.mark.slow
@settings(max_examples=times(150), suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS, seed=st.integers(0, 10**6))
def test_many_random_schemas(schema: Any, seed: int) -> None:
    check_answers_or_refusal(schema, range(seed, seed + 1))


@pytest.mark.parametrize("schema", CASES)
def test_answers_of_a_schema(schema: Any) -> None:
    assert answers(schema, range(20)) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("schema", CASES)
def test_many_answers_of_a_schema(schema: Any) -> None:
    assert answers(schema, range(100, 100 + times(100))) >= times(50)
