"""What the stand-in engine's server refuses, a real one refuses alike, and nobody else's answer changes meanwhile."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import times
from tests.end_to_end.conftest import Served
from tests.server.test_refusals import CASES, ENDPOINTS, FIELDS, JSON, check_error

CONTROL = {"prompt": "control", "max_tokens": 12, "seed": 3, "temperature": 1.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def http(tiny: Served) -> Iterator[httpx.Client]:
    """Plain HTTP to the tiny model; at the end the control request gives what it gave at the start."""
    with httpx.Client(base_url=tiny.server.url, timeout=60) as client:
        before = client.post("/v1/completions", json=CONTROL).json()["choices"]
        yield client
        assert client.post("/v1/completions", json=CONTROL).json()["choices"] == before
        load = client.get("/load").json()
        assert (load["num_running"], load["num_waiting"], load["num_http_in_flight"]) == (0, 0, 0)


@pytest.mark.parametrize(("path", "field", "value"), CASES)
def test_illegal_values_are_400_naming_the_field(http: httpx.Client, path: str, field: str, value: object) -> None:
    error = check_error(http.post(path, json=ENDPOINTS[path] | {field: value}), 400)
    assert (error["param"] or "").partition("[")[0].partition(".")[0] == field, error


@settings(max_examples=times(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(sorted(ENDPOINTS)),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3),
)
def test_no_request_breaks_the_engine(http: httpx.Client, path: str, fields: dict[str, Any]) -> None:
    answer = http.post(path, json={"max_tokens": 2, **ENDPOINTS[path], **fields})
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code != 200:
        check_error(answer, answer.status_code)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1e-6},
        {"temperature": 100, "top_k": 0, "top_p": 1, "min_p": 0},
        {"top_k": 10**9},
        {"top_p": 1e-9},
        {"min_p": 1},
        {"repetition_penalty": 100},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"logit_bias": {"5": 100}},
        {"allowed_token_ids": [5]},
        {"min_tokens": 4},
        {"bad_words": ["a", "the"]},
        {"seed": 2**63 - 1},
        {"logprobs": 20},
    ],
    ids=str,
)
def test_legal_extremes_give_whole_answers(http: httpx.Client, options: dict[str, Any]) -> None:
    body = {"prompt": "x", "max_tokens": 4, "return_token_ids": True, "ignore_eos": True, **options}
    choice = http.post("/v1/completions", json=body).json()["choices"][0]
    assert len(choice["token_ids"]) == 4
    if "logit_bias" in options or "allowed_token_ids" in options:
        assert set(choice["token_ids"]) == {5}
