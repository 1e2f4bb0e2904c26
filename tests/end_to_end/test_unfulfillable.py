"""Requests that begin well and that no token can fulfil: their clients' affair, so a 422 that names the field."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.end_to_end.conftest import serving

BODY = {"prompt": "a", "temperature": 0, "max_tokens": 400}
MANY_WAYS = "root ::= " + "(" * 20 + '"a"{0,1000}' + "){0,1000}" * 20


@pytest.fixture(scope="module")
def client(tiny_file: str) -> Iterator[httpx.Client]:
    with serving(tiny_file) as server, httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


def token_of(client: httpx.Client, text: str) -> int:
    ids = client.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]
    return int(ids[-1])


def shapes(client: httpx.Client) -> dict[str, tuple[dict[str, Any], str]]:
    """Name -> fields of the request, and what the message must hold."""
    letter = token_of(client, "a")
    return {
        "structured_outputs": ({"structured_outputs": {"grammar": MANY_WAYS}}, "too many ways to read it"),
        "guided_regex": (
            {"guided_regex": "[0-9]+", "allowed_token_ids": [letter]},
            "no token is left to sample: the shape asked for and allowed_token_ids",
        ),
    }


@pytest.mark.parametrize(
    ("field", "stream"), [("structured_outputs", False), ("guided_regex", False), ("guided_regex", True)]
)
def test_the_client_is_told_which_field_leads_nowhere(client: httpx.Client, field: str, stream: bool) -> None:
    fields, message = shapes(client)[field]
    answer = client.post("/v1/completions", json=BODY | fields | {"stream": stream})
    if answer.status_code == 200:  # a stream that had begun
        assert stream
        *_, last, _ = [line for line in answer.text.splitlines() if line]
        error = json.loads(last.removeprefix("data: "))["error"]
    else:
        assert answer.status_code == 422
        error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "unfulfillable", field)
    assert error["message"].startswith(f"{field}: ") and message in error["message"]
    assert client.post("/v1/completions", json=BODY | {"max_tokens": 2}).status_code == 200
