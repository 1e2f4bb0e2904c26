"""Sampling parameters that cannot be honoured are refused where they are made, by name."""

import math
from typing import Any

import msgspec
import pytest

from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from octavo.request.structured import CallShape, CallsShape, StructuredKind, StructuredSpec


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", "END"),  # would be the stop strings E, N and D
        ("stop", None),
        ("stop", (1,)),
        ("stop", ("",)),
        ("bad_words", "word"),
        ("stop_token_ids", 7),
        ("stop_token_ids", ("7",)),
        ("stop_token_ids", (True,)),
        ("allowed_token_ids", ()),
        ("allowed_token_ids", "7"),
        ("logit_bias", [7]),
        ("logit_bias", {"7": 1.0}),
        ("logit_bias", {7: "1"}),
        ("logit_bias", {7: math.nan}),
        ("logit_bias", {7: 101}),
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 10**400),
        ("top_p", 0),
        ("max_tokens", 1.5),
        ("n", "2"),
        ("seed", 2**63),
        ("structured_outputs", {"kind": "json_object"}),
    ],
)
def test_the_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        SamplingParams(**{field: value})
    assert refusal.value.field == field


def test_lists_are_as_good_as_tuples() -> None:
    params = SamplingParams(stop=["a"], stop_token_ids=[7], bad_words=["b"], allowed_token_ids=[7])  # type: ignore[arg-type]
    assert list(params.stop) == ["a"]


@pytest.mark.parametrize(
    "spec",
    [
        StructuredSpec(kind=StructuredKind.JSON_OBJECT, compact=True),
        StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source='{"type": "null"}', field="response_format"),
        StructuredSpec(kind=StructuredKind.CHOICE, choices=("yes", "no")),
        StructuredSpec(
            kind=StructuredKind.CALLS,
            calls=CallsShape(calls=(CallShape(begin="<", end=">"),), trigger="<", min_calls=0),
        ),
    ],
)
def test_the_shape_of_an_answer_crosses_to_the_core(spec: StructuredSpec) -> None:
    params = SamplingParams(structured_outputs=spec)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
