"""What is refused, and how: always OpenAI's shape, the right status, the field's name, and a server that lives on."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.config import ServerConfig
from tests.effort import times
from tests.server.conftest import FakeServer, fake
from tests.server.fake_engine import FakeEngine
from tests.server.running import running_server

HELLO = [{"role": "user", "content": "hello"}]
ENDPOINTS = {"/v1/completions": {"prompt": "hello"}, "/v1/chat/completions": {"messages": HELLO}}


def check_error(answer: httpx.Response, status: int, param: str | None = None) -> dict[str, Any]:
    """Asserts an error in OpenAI's shape; returns it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    if param is not None:
        assert error["param"] == param, error
        assert param.partition("[")[0] in error["message"]
    return error


TOOL = {"type": "function", "function": {"name": "f"}}
ILLEGAL = {
    "temperature": [-1, 1e30, "hot", True, [1]],
    "top_p": [2, -0.5, 0, "x"],
    "top_k": [-5, 1.5, 2**40],
    "min_p": [2, -0.1],
    "presence_penalty": [100, -3],
    "frequency_penalty": [2.5],
    "repetition_penalty": [0, -1],
    "seed": [-1, 2**63, 2**70, 1.5, "7"],
    "max_tokens": [-1, 2**63, 1.5, True],
    "min_tokens": [-1, 2**63],
    "n": [0, -1, 129, 2**31, True],
    "stop": [5, {"a": 1}, ["a", 5], [""], "", ["x"] * 65],
    "stop_token_ids": [[-1], [10**6], ["a"], 5, [7] * 1000],
    "logit_bias": [{"99999": 5}, {"-1": 1}, {"x": 1}, {"5": 101}, {"5": "a"}, [5]],
    "allowed_token_ids": [[], [10**6], [2**70], [7] * 1000],
    "bad_words": [[""], "word", ["x"] * 1025],
    "prompt_logprobs": [-1, 21],
    "truncate_prompt_tokens": [0, -2],
    "truncation_side": ["right", "middle", 5],
    "repetition_detection": [
        5,
        {"max_pattern_size": 4},
        {"max_pattern_size": 4, "min_count": 1},
        {"max_pattern_size": -1, "min_count": 2},
        {"max_pattern_size": 4, "min_pattern_size": 5, "min_count": 2},
        {"max_pattern_size": 10**6, "min_count": 2},
        {"max_pattern_size": 2**70, "min_count": 2},
        {"window": 4},
    ],
    "use_beam_search": [True],
    "length_penalty": [1.2, 0],
    "watermarking": [True],
    "stream_interval": [0, 2, "x"],
    "vllm_xargs": [{"a": 1}],
    "cache_salt": ["", "x" * 200, 5],
    "priority": [1, -1, 2**63],
    "stream": ["yes", 1],
    "stream_options": [{"include_usage": True}, 5],
    "response_format": [
        "json",
        {"type": "grammar"},
        {"type": "structural_tag", "structures": []},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
        {"type": "json_schema", "json_schema": {"name": "two words", "schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "x" * 65, "schema": {}}},
        {"type": "json_object", "json_schema": {"name": "x", "schema": {}}},
        {"type": "text", "strict": True},
    ],
    "structured_outputs": [
        {},
        {"json": {}, "regex": "a"},
        {"json": "{no json"},
        {"json_object": False},
        {"choice": []},
        {"structural_tag": {}},
        {"regex": "a", "whitespace_pattern": " *"},
        {"lark": "x"},
    ],
    "guided_regex": [5, ""],
    "guided_choice": [[], "yes"],
    "guided_decoding_backend": ["outlines"],
    "guided_whitespace_pattern": [" "],
    "user": [5],
    "model": [5],
}
BY_ENDPOINT = {
    "/v1/completions": {
        "prompt": [[], [[]], 5, {"a": 1}, [-1], [[5, -7]], [10**6], [2**63], [1.5], [True], ["a", 5], [["a"]]],
        "logprobs": [-1, 21, 2**40, True],
        "best_of": [3, 0],
        "suffix": ["end"],
        "echo": ["yes"],
    },
    "/v1/chat/completions": {
        "messages": [[], "x", [1], [{"role": "user"}], [{"role": "king", "content": "x"}], [{"content": "x"}]],
        "top_logprobs": [5],
        "logprobs": [5],
        "tools": [
            [TOOL],
            [{"type": "custom", "custom": {"name": "f"}}],
            [{"type": "function"}],
            [{"type": "function", "function": {"name": "two words"}}],
            [{"type": "function", "function": {"name": "f", "parameters": []}}],
            [TOOL, TOOL],
            [TOOL] * 1025,
        ],
        "tool_choice": [
            "required",
            "any",
            {"type": "function", "function": {"name": "f"}},
            {"type": "function", "name": "f"},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        ],
        "function_call": ["f", {"name": "f"}],
        "documents": [[{"text": "x"}], "x"],
        "chat_template": ["{{ messages }}"],
        "functions": [[{"name": "f"}]],
        "service_tier": ["flex"],
        "store": [True],
        "modalities": [["text", "audio"]],
        "reasoning_effort": ["high"],
        "prediction": [{"type": "content", "content": "x"}],
        "web_search_options": [{}],
        "max_completion_tokens": [-1, 0, 2**63],
    },
}
CASES = [
    pytest.param(path, field, value, id=f"{path.rsplit('/')[2]}-{field}-{str(value)[:30]}")
    for path in ENDPOINTS
    for field, values in (ILLEGAL | BY_ENDPOINT[path]).items()
    for value in values
]


@pytest.mark.parametrize(("path", "field", "value"), CASES)
def test_illegal_values_are_400_naming_the_field(http: httpx.Client, path: str, field: str, value: object) -> None:
    error = check_error(http.post(path, json=ENDPOINTS[path] | {field: value}), 400)
    assert (error["param"] or "").partition("[")[0].partition(".")[0] == field, error
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ENDPOINTS)
def test_legal_extremes_are_served(http: httpx.Client, path: str) -> None:
    extremes = {"temperature": 1e-6, "top_k": 10**9, "top_p": 1e-9, "min_p": 1, "seed": 0, "n": 8, "stop": ["x"] * 64}
    assert http.post(path, json=ENDPOINTS[path] | {"max_tokens": 2} | extremes).status_code == 200


NEUTRAL = {
    "use_beam_search": False,
    "length_penalty": 1.0,
    "watermarking": False,
    "stream_interval": 1,
    "vllm_xargs": {},
    "spaces_between_special_tokens": True,
    "repetition_detection": {"max_pattern_size": 0},
}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_what_has_no_effect_is_accepted(http: httpx.Client, path: str) -> None:
    body = ENDPOINTS[path] | {"max_tokens": 3, "seed": 5}
    plain, neutral = (http.post(path, json=body | more).json()["choices"] for more in ({}, NEUTRAL))
    assert plain == neutral


@pytest.mark.parametrize("path", ENDPOINTS)
def test_spaces_between_special_tokens_are_refused_where_these_are_shown(http: httpx.Client, path: str) -> None:
    body = ENDPOINTS[path] | {"spaces_between_special_tokens": True, "skip_special_tokens": False}
    check_error(http.post(path, json=body), 400, "spaces_between_special_tokens")
    shown = body | {"spaces_between_special_tokens": False, "max_tokens": 1}
    assert http.post(path, json=shown).status_code == 200


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_numbers_that_are_none(http: httpx.Client, path: str, number: str) -> None:
    body = json.dumps(ENDPOINTS[path])[:-1] + f', "temperature": {number}}}'
    check_error(http.post(path, content=body), 400, "temperature")


@pytest.mark.parametrize("path", [*ENDPOINTS, "/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{:",
        b"null",
        b"[]",
        b"5",
        b"[" * 10_000,
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud83d"}',
        b'{"prompt": "x"',
        b'{"user": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"\x00",
        b"{}",
    ],
)
def test_bodies_that_are_no_request(http: httpx.Client, path: str, body: bytes) -> None:
    check_error(http.post(path, content=body), 400)
    assert http.get("/health").status_code == 200


def test_a_request_at_the_wrong_endpoint_is_told_the_right_one(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "x"}]
    error = check_error(http.post("/v1/completions", json={"prompt": "x", "messages": messages}), 400, "messages")
    assert error["message"] == "unknown field 'messages'; /v1/chat/completions takes it"
    error = check_error(http.post("/v1/chat/completions", json={"messages": messages, "prompt": "x"}), 400, "prompt")
    assert error["message"] == "unknown field 'prompt'; /v1/completions takes it"


@pytest.mark.parametrize("path", ENDPOINTS)
def test_unknown_fields_are_named(http: httpx.Client, path: str) -> None:
    error = check_error(http.post(path, json=ENDPOINTS[path] | {"temprature": 1}), 400, "temprature")
    assert error["code"] == "unknown_field"
    assert error["message"] == "unknown field 'temprature'; did you mean temperature?"
    check_error(http.post(path, json=ENDPOINTS[path] | {"we ird\n": 1}), 400)
    check_error(http.post(path, json=ENDPOINTS[path] | {"stream": True, "stream_options": {"x": 1}}), 400)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}},
        {"type": "input_audio", "input_audio": {}},
        {"type": "file", "file": {}},
        {"type": "text"},
        {"text": "x"},
        {"type": "text", "text": 5},
        {"type": "text", "text": "x", "image_url": "http://127.0.0.1:1"},
        "x",
        None,
    ],
)
def test_only_text_parts(http: httpx.Client, part: object) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]
    check_error(http.post("/v1/chat/completions", json={"messages": messages}), 400, "messages[0].content")


def test_too_long_a_prompt_names_the_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="holds 512 tokens: the prompt has 601 tokens") as caught:
        client.completions.create(model="fake", prompt="x" * 600)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.BadRequestError, match="holds 512 tokens") as caught:
        client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "x" * 600}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("length", "max_tokens", "param"),
    [
        (511, 1, None),
        (512, 1, "prompt"),
        (513, 1, "prompt"),
        (1024, 1, "prompt"),
        (500, 12, None),
        (500, 13, "max_tokens"),
    ],
)
def test_the_limit_is_exact(http: httpx.Client, length: int, max_tokens: int, param: str | None) -> None:
    answer = http.post("/v1/completions", json={"prompt": [65] * length, "max_tokens": max_tokens})
    if param is None:
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["finish_reason"] == "length"
    else:
        assert check_error(answer, 400, param)["code"] == "context_length_exceeded"


def test_unknown_paths_and_methods(http: httpx.Client) -> None:
    assert check_error(http.get("/nowhere"), 404)["message"] == "no such endpoint: GET /nowhere"
    for path in ("/v1/v1/chat/completions", "/chat/completions", "/v1/chat/completion"):
        error = check_error(http.post(path, json={}), 404)
        assert error["message"] == f"no such endpoint: POST {path}; did you mean /v1/chat/completions?"
    check_error(http.get("/v1/models/other"), 404, "model")
    wrong = http.get("/v1/completions")
    check_error(wrong, 405)
    assert wrong.headers["allow"] == "POST"


def test_content_types(http: httpx.Client) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        answer = http.post("/v1/completions", content=b'{"prompt": "x"}', headers={"Content-Type": kind})
        check_error(answer, 415, "Content-Type")
    for kind in ("application/json; charset=utf-8", "application/vnd.api+json"):
        answer = http.post("/v1/completions", content=b'{"prompt": "x"}', headers={"Content-Type": kind})
        assert answer.status_code == 200
    compressed = http.post("/v1/completions", content=b"x", headers={"Content-Encoding": "gzip"})
    check_error(compressed, 415, "Content-Encoding")


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """A server that takes bodies up to 2 KiB."""
    with running_server(fake, ServerConfig(port=0, max_body_bytes=2048)) as running:
        yield running.url


def test_large_bodies_are_413(small: str) -> None:
    body = {"prompt": "x" * 4000}
    check_error(httpx.post(f"{small}/v1/completions", json=body), 413)

    def chunked() -> Iterator[bytes]:
        for _ in range(4000):
            yield b"x" * 100

    with contextlib.suppress(httpx.WriteError):  # the server may close while we still send
        check_error(httpx.post(f"{small}/v1/completions", content=chunked()), 413)
    assert httpx.post(f"{small}/v1/completions", json={"prompt": "x"}).status_code == 200


def test_queue_full_is_429_with_retry_after(server: FakeServer, http: httpx.Client) -> None:
    server.engine.queue_full = True
    try:
        for stream in (False, True):
            for prompt in ("x", ["x", "y"]):
                answer = http.post("/v1/completions", json={"prompt": prompt, "stream": stream})
                assert check_error(answer, 429)["code"] == "queue_full"
                assert answer.headers["retry-after"] == "2"
    finally:
        server.engine.queue_full = False


def test_a_failure_of_one_request_is_its_own(server: FakeServer, client: openai.OpenAI, http: httpx.Client) -> None:
    server.engine.fail_after["poison"] = 0
    with pytest.raises(openai.InternalServerError, match="holds NaN"):
        client.completions.create(model="fake", prompt="poison")
    with pytest.raises(openai.InternalServerError, match="holds NaN"):
        client.completions.create(model="fake", prompt="poison", stream=True)
    with pytest.raises(openai.InternalServerError, match="holds NaN"):
        client.completions.create(model="fake", prompt=["fine", "poison"])
    assert client.completions.create(model="fake", prompt="fine").choices[0].text
    assert not server.engine.live


def test_a_failure_in_mid_stream_is_an_event(server: FakeServer, client: openai.OpenAI, http: httpx.Client) -> None:
    server.engine.fail_after["late poison"] = 3
    answer = http.post("/v1/completions", json={"prompt": "late poison", "stream": True})
    *chunks, error, done = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert answer.status_code == 200
    assert done == "[DONE]"
    assert json.loads(error)["error"]["message"] == "the row holds NaN"
    assert len(chunks) == 3
    with pytest.raises(openai.APIError, match="holds NaN"):
        list(client.completions.create(model="fake", prompt="late poison", stream=True))


def test_a_bug_is_a_500_without_internals(
    server: FakeServer, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("/secret/path/engine.py at 0x7f00")

    original, server.engine.generate = server.engine.generate, broken  # type: ignore[assignment, method-assign]
    try:
        answer = http.post("/v1/completions", json={"prompt": "x"}, headers={"X-Request-Id": "trace-me"})
    finally:
        server.engine.generate = original  # type: ignore[method-assign]
    error = check_error(answer, 500)
    assert error["message"] == "internal error; the server's log knows it as trace-me"
    assert answer.headers["x-request-id"] == "trace-me"
    assert "/secret/path" in caplog.text
    assert "trace-me" in caplog.text


def test_a_server_without_tokenizer_takes_and_gives_ids() -> None:
    async def start() -> FakeEngine:
        return FakeEngine(tokenizer=False)

    with running_server(start) as running, httpx.Client(base_url=running.url) as http:
        answer = http.post("/v1/completions", json={"prompt": [65, 66], "max_tokens": 3, "return_token_ids": True})
        assert len(answer.json()["choices"][0]["token_ids"]) == 3
        for body in ({"prompt": "x"}, {"prompt": [65], "echo": True}):
            check_error(http.post("/v1/completions", json=body), 400, "prompt")
        check_error(http.post("/v1/completions", json={"prompt": [65], "logprobs": 1}), 400, "logprobs")
        check_error(http.post("/v1/completions", json={"prompt": [65], "stop": ["x"]}), 400, "stop")
        check_error(http.post("/v1/chat/completions", json={"messages": HELLO}), 400, "messages")
        check_error(http.post("/tokenize", json={"prompt": "x"}), 400, "prompt")


def test_priority_needs_its_policy() -> None:
    """Which need not be called so: the policy says itself whether it reads them."""

    async def start() -> FakeEngine:
        engine = FakeEngine()
        engine.info = replace(engine.info, scheduling_policy="shortest", reads_priority=True)
        return engine

    with running_server(start) as running, httpx.Client(base_url=running.url) as http:
        assert http.post("/v1/completions", json={"prompt": "x", "priority": -3, "cache_salt": "s"}).status_code == 200
        assert running.engine.seen[-1][2] == {"tenant": "", "priority": -3, "cache_salt": "s", "session": None}
        check_error(http.post("/v1/completions", json={"prompt": "x", "priority": 2**63}), 400, "priority")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from([2**31, 2**63, -1, 0, "", 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({*ILLEGAL, *BY_ENDPOINT["/v1/completions"], *BY_ENDPOINT["/v1/chat/completions"], "unknown"})


@settings(max_examples=times(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(sorted(ENDPOINTS)),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3),
)
def test_no_request_breaks_the_server(http: httpx.Client, path: str, fields: dict[str, Any]) -> None:
    body = {"max_tokens": 2, **ENDPOINTS[path], **fields}
    answer = http.post(path, json=body)
    assert answer.status_code in (200, 400, 404), (body, answer.text)
    if answer.status_code != 200:
        check_error(answer, answer.status_code)


def test_prompts_times_n_is_bounded(http: httpx.Client) -> None:
    error = check_error(http.post("/v1/completions", json={"prompt": ["x"] * 1024, "n": 5}), 400)
    assert error["param"] == "n"
    assert "5120 answers" in error["message"]
