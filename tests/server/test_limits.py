"""Each line of the table of limits: what just fits, and what is one too many."""

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.server.limits import LIMITS, limits_table
from tests.server.conftest import FakeServer, fake
from tests.server.fake_engine import VOCAB
from tests.server.running import running_server
from tests.server.test_refusals import check_error

HI = {"role": "user", "content": "x"}
V1 = "/v1/completions"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Probe:
    """A request that grows with a number."""

    fits: Any
    """A body that is taken, at the limit; not a dict where that cannot be shown with a stand-in for an engine."""
    exceeds: Any
    """One beyond it."""
    path: str = V1
    param: str | None = None


def tool(number: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"f{number}"}}


PROBES = {
    "nesting of JSON": Probe({"user": None}, {"user": json.loads("[" * 201 + "]" * 201)}),
    "digits of an integer": Probe('{"prompt":"x","metadata":1}', '{"prompt":"x","watermarking":%s}' % ("1" * 4301)),
    "`messages`": Probe({"messages": [HI] * 20}, {"messages": [HI] * 4097}, CHAT, "messages"),
    "prompts in `prompt`": Probe({"prompt": ["x"] * 1024}, {"prompt": ["x"] * 1025}, param="prompt"),
    "`n`": Probe({"n": 128}, {"n": 129}, param="n"),
    "answers, prompts times `n`": Probe({"prompt": ["x"] * 32, "n": 128}, {"prompt": ["x"] * 33, "n": 128}, param="n"),
    "strings in `stop`": Probe({"stop": ["x"] * 64}, {"stop": ["x"] * 65}, param="stop"),
    "characters of a stop string": Probe({"stop": ["y", "x" * 1024]}, {"stop": "x" * 1025}, param="stop"),
    "ids in `stop_token_ids`": Probe(
        {"stop_token_ids": list(range(len(VOCAB)))}, {"stop_token_ids": [7] * (len(VOCAB) + 1)}, param="stop_token_ids"
    ),
    "ids in `allowed_token_ids`": Probe(
        {"allowed_token_ids": list(range(len(VOCAB)))},
        {"allowed_token_ids": [7] * (len(VOCAB) + 1)},
        param="allowed_token_ids",
    ),
    "entries of `logit_bias`": Probe(
        {"logit_bias": {str(i): 1 for i in range(len(VOCAB))}},
        {"logit_bias": {str(i): 1 for i in range(len(VOCAB) + 1)}},
        param="logit_bias",
    ),
    "`bad_words`": Probe({"bad_words": ["zzz"] * 1024}, {"bad_words": ["zzz"] * 1025}, param="bad_words"),
    "characters of a bad word": Probe({"bad_words": ["z" * 1024]}, {"bad_words": ["z" * 1025]}, param="bad_words[0]"),
    "`top_logprobs`, `logprobs`, `prompt_logprobs`": Probe({"logprobs": 20}, {"logprobs": 21}, param="logprobs"),
    "ids in `logprob_token_ids`": Probe(
        {"logprobs": 0, "logprob_token_ids": list(range(128))},
        {"logprobs": 0, "logprob_token_ids": list(range(129))},
        param="logprob_token_ids",
    ),
    "bytes of `logits_processors`": Probe(
        None, {"logits_processors": {"x": {"y": "z" * 65536}}}, param="logits_processors"
    ),
    "inputs in `input` of embeddings": Probe(
        {"input": ["x"] * 2048}, {"input": ["x"] * 2049}, "/v1/embeddings", "input"
    ),
    "`tools`": Probe(
        {"messages": [HI], "tools": []},
        {"messages": [HI], "tools": [tool(number) for number in range(1025)]},
        CHAT,
        "tools",
    ),
    "characters of `cache_salt`": Probe({"cache_salt": "x" * 128}, {"cache_salt": "x" * 129}, param="cache_salt"),
    "characters of `session_id`": Probe({"session_id": "x" * 128}, {"session_id": "x" * 129}, param="session_id"),
    "seconds of a session's lease": Probe(
        {"session_id": "a", "session_lease_s": 604800},
        {"session_id": "a", "session_lease_s": 604801},
        param="session_lease_s",
    ),
    "ids in one `POST /v1/abort`": Probe(
        {"request_ids": ["x"] * 1000}, {"request_ids": ["x"] * 1001}, "/v1/abort", "request_ids"
    ),
    "characters of a request's id": Probe(
        {"request_id": "x" * 256}, {"request_id": "x" * 257}, "/v1/abort", "request_ids"
    ),
    "tokens of prompt and answer": Probe({"prompt": "x" * 509}, {"prompt": "x" * 511}, param="prompt"),
}
ELSEWHERE = {
    "bytes of the request line and headers": "test_connections.py::test_what_is_no_http",
    "seconds until the headers, and until the body, have arrived": "test_connections.py::test_half_a_head",
    "bytes of a body": "test_limits.py::test_a_body_of_exactly_the_limit",
    "objects, lists and texts in a body of 64 KiB or more": "test_body_weight.py::test_how_many_values_just_fit",
    "values in such a body, or twice the context's tokens if that is more": (
        "test_body_weight.py::test_how_many_values_just_fit"
    ),
    "tokens of one text": "../text/test_least_tokens.py::test_a_text_of_too_many_tokens_is_refused",
    "seconds that an idle connection is kept": "test_limits.py::test_idle_connections",
    "connections of one API process": "test_connections.py::test_too_many_connections",
    "requests of a key in 60 seconds": "test_key_limits.py::test_requests_per_minute",
    "tokens of a key in 60 seconds": "test_key_limits.py::test_tokens_per_minute_count_what_usage_says",
    "requests of a key at one time": "test_key_limits.py::test_concurrent_requests",
    "waiting requests": "test_refusals.py::test_queue_full_is_429_with_retry_after",
    "sessions of a key": "../kv/test_pins.py::test_the_number_of_sessions_of_a_tenant_is_bounded",
    "characters of `X-Request-Id`": "test_limits.py::test_request_ids_are_kept_if_they_are_sane",
}


def post(http: httpx.Client, probe: Probe, body: Any) -> httpx.Response:
    if isinstance(body, str):
        return http.post(probe.path, content=body)
    start = {} if probe.path != V1 else {"prompt": "x", "max_tokens": 1}
    return http.post(probe.path, json=start | body)


@pytest.mark.parametrize("what", PROBES)
def test_what_fits_and_what_does_not(http: httpx.Client, what: str) -> None:
    probe = PROBES[what]
    if isinstance(probe.fits, dict):
        assert post(http, probe, probe.fits).status_code == 200, what
    error = check_error(post(http, probe, probe.exceeds), 400)
    if probe.param is not None:
        assert (error["param"] or "").partition(".")[0] == probe.param, error
    assert len(error["message"]) < 1000


def test_every_limit_has_its_test() -> None:
    assert {limit.what for limit in LIMITS} == {*PROBES, *ELSEWHERE}
    folder = Path(__file__).parent
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (folder / file).read_text(), place


def test_the_page_holds_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    held = re.search(r"<!-- limits -->\n(.*)<!-- /limits -->", page, re.DOTALL)
    assert held is not None
    assert held[1] == limits_table(), "run python -m octavo.server.limits"


@pytest.fixture(scope="module")
def small() -> Iterator[FakeServer]:
    with running_server(fake, ServerConfig(port=0, max_body_bytes=1024)) as running:
        yield running


def test_a_body_of_exactly_the_limit(small: FakeServer) -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 1})
    for size, status in ((1024, 200), (1025, 413)):
        assert httpx.post(small.url + V1, content=body.ljust(size)).status_code == status


@pytest.mark.parametrize("path", ["/health/", "/v1/models/fake/", "/v1/completions/", "//health", "/V1/models", "/v1"])
def test_paths_are_what_they_are(http: httpx.Client, path: str) -> None:
    for answer in (http.get(path), http.post(path, json={"prompt": "x"})):
        assert answer.status_code in (404, 405)
        assert not answer.is_redirect
        assert set(answer.json()) == {"error"}


def test_a_long_path_is_shortened(http: httpx.Client) -> None:
    error = check_error(http.get("/" + "y" * 5000), 404)
    assert len(error["message"]) < 300


@pytest.mark.parametrize(
    "kind",
    [
        "application/json; charset=utf-16",
        'application/json;charset="UTF-16LE"',
        "application/json; charset=latin-1",
        "application/json; x=y; charset=utf-32",
    ],
)
def test_only_utf_8(http: httpx.Client, kind: str) -> None:
    for body in (b'{"prompt": "x"}', '{"prompt": "x"}'.encode("utf-16")):
        error = check_error(http.post(V1, content=body, headers={"Content-Type": kind}), 415, "Content-Type")
        assert "UTF-8" in error["message"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_other_encodings_without_a_word_are_no_json(http: httpx.Client, encoding: str) -> None:
    check_error(http.post(V1, content='{"prompt": "x"}'.encode(encoding)), 400)


@pytest.mark.parametrize(
    "kind", ["application/json;charset=UTF-8", 'application/json; charset="utf-8"', "APPLICATION/JSON"]
)
def test_utf_8_by_any_spelling(http: httpx.Client, kind: str) -> None:
    assert http.post(V1, content=b'{"prompt": "x"}', headers={"Content-Type": kind}).status_code == 200


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9223372036854775808", "1" * 400]
)
@pytest.mark.parametrize("field", ["seed", "top_k", "temperature", "priority", "logprobs", "max_tokens", "min_p"])
def test_numbers_are_finite_and_in_range(http: httpx.Client, field: str, number: str) -> None:
    check_error(http.post(V1, content=f'{{"prompt": "x", "{field}": {number}}}'), 400, field)


@pytest.mark.parametrize("text", ['"\\ud83d"', '"\\udc00\\ud800"', '"\\ud83dx"'])
@pytest.mark.parametrize("field", ["prompt", "stop", "user", "cache_salt", "model", "unknown\\ud83d"])
def test_lone_surrogates(http: httpx.Client, field: str, text: str) -> None:
    check_error(http.post(V1, content=f'{{"prompt": "x", "max_tokens": 1, "{field}": {text}}}'), 400)


ARGUMENTS = [
    '{"a": ' * 900 + "1" + "}" * 900,
    '{"a": NaN}',
    '{"a": [1e999]}',
    '{"a": "\\ud800"}',
    "[]",
    '{"a": ' + "1" * 5000 + "}",
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda text: text[:16])
@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
def test_a_text_of_json_keeps_the_rules_of_a_body(http: httpx.Client, path: str, arguments: str) -> None:
    call = {"name": "f", "arguments": arguments}
    if path == CHAT:
        body: dict[str, Any] = {"messages": [HI, {"role": "assistant", "tool_calls": [{"id": "a", "function": call}]}]}
        field = "messages[1].tool_calls[0].function.arguments"
    else:
        body, field = {"input": [HI, {"type": "function_call", "call_id": "a", **call}]}, "input[1].arguments"
    check_error(http.post(path, json=body), 400, field)


OPEN_OBJECTS = [
    (CHAT, {"messages": [HI], "chat_template_kwargs": {"a": "HUGE"}}, "chat_template_kwargs"),
    (CHAT, {"messages": [HI], "documents": [{"a": ["HUGE"]}]}, "documents[0]"),
    (CHAT, {"messages": [HI], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": "HUGE"}}}]},
     "tools[0].function.parameters"),
    ("/v1/responses", {"input": "x", "chat_template_kwargs": {"a": "HUGE"}}, "chat_template_kwargs"),
    ("/v1/messages", {"messages": [HI], "max_tokens": 1, "chat_template_kwargs": {"a": "HUGE"}},
     "chat_template_kwargs"),
    ("/tokenize", {"messages": [HI], "chat_template_kwargs": {"a": "HUGE"}}, "chat_template_kwargs"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "field"), OPEN_OBJECTS)
def test_numbers_are_finite_in_objects_of_any_shape(
    http: httpx.Client, path: str, body: dict[str, Any], field: str
) -> None:
    answer = http.post(path, content=json.dumps(body).replace('"HUGE"', "1e999"))
    assert answer.status_code == 400, answer.text
    assert "finite" in answer.text
    assert field in answer.text


NAMED = [
    (V1, {"prompt": "x", "temperature": -1}, "temperature", "-1", "[0, 100]"),
    (V1, {"prompt": "x", "n": 0}, "n", "0", "[1, 128]"),
    (V1, {"prompt": "x", "stop": 5}, "stop", "5", "string"),
    (V1, {"prompt": "x", "seed": 1.5}, "seed", "1.5", "integer"),
    (V1, {"prompt": "x", "stream": "yes"}, "stream", "'yes'", "boolean"),
    (V1, {"prompt": [1, "a"]}, "prompt", "[1, 'a']", "all texts"),
    (V1, {"prompt": "x", "user": "u", "model": 5}, "model", "5", "string"),
    (CHAT, {"messages": "x"}, "messages", "'x'", "array"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "'king'", "'system'"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "5", "text"),
    (CHAT, {"messages": [HI], "top_logprobs": -1, "logprobs": True}, "top_logprobs", "-1", "["),
    (CHAT, {"messages": [HI] * 4097}, "messages", "[", "at most 4096"),
    ("/tokenize", {"prompt": 5}, "prompt", "5", "string"),
    ("/detokenize", {"tokens": ["a"]}, "tokens[0]", "'a'", "integer"),
]


@pytest.mark.parametrize(("path", "body", "field", "value", "rule"), NAMED)
def test_a_400_names_field_value_and_rule(
    http: httpx.Client, path: str, body: dict[str, Any], field: str, value: str, rule: str
) -> None:
    error = check_error(http.post(path, json=body), 400, field)
    assert value in error["message"]
    assert rule in error["message"]
    assert "Value error" not in error["message"]
    assert "Input should" not in error["message"]
    assert len(error["message"]) < 500


def test_request_ids_are_kept_if_they_are_sane(http: httpx.Client) -> None:
    for offered in ("abc-1.2:3_X", "x" * 128):
        assert http.get("/health", headers={"X-Request-Id": offered}).headers["x-request-id"] == offered
    for offered in ("", "x" * 129, "a b", "a\tb", "ä".encode(), "a;b", "<script>", "a/b"):
        made = http.get("/nowhere", headers={"X-Request-Id": offered}).headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f]{32}", made)


def test_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.server.http_server.KEEP_ALIVE_S", 0)
    with running_server(fake) as running:
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while part := connection.recv(4096):
                answer += part
        assert b" 200 " in answer
