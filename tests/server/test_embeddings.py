"""POST /v1/embeddings: forms of input, encodings, order, refusals, faults, disconnects."""

import base64
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from octavo.request.pooling import PoolingParams
from octavo.server.openai.embedding_body import MAX_INPUTS
from octavo.server.openai.embeddings import WAITING_PER_PLACE
from tests.server.conftest import FakeServer, wait_until
from tests.server.fake_engine import BOS, fake_vector
from tests.server.test_metrics import finished, scrape


def ids(text: str) -> list[int]:
    return [BOS, *text.encode()]


def expected(token_ids: list[int], **params: Any) -> list[float]:
    return np.frombuffer(fake_vector(token_ids, PoolingParams(**params)), "<f4").tolist()


def post(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/v1/embeddings", json={"model": "fake", **body})


def vectors(response: httpx.Response) -> list[list[float]]:
    data = response.raise_for_status().json()["data"]
    assert [entry["index"] for entry in data] == list(range(len(data)))
    assert all(entry["object"] == "embedding" for entry in data)
    return [entry["embedding"] for entry in data]


def test_the_stock_client_and_plain_numbers_agree_exactly(client: openai.OpenAI, http: httpx.Client) -> None:
    """The client asks for base64 unless told, and decodes it as float32."""
    by_default = client.embeddings.create(model="fake", input=["b a", "c"])
    as_numbers = client.embeddings.create(model="fake", input=["b a", "c"], encoding_format="float")
    wanted = [expected(ids("b a")), expected(ids("c"))]
    assert [entry.embedding for entry in by_default.data] == wanted
    assert [entry.embedding for entry in as_numbers.data] == wanted
    assert vectors(post(http, input=["b a", "c"])) == wanted
    assert by_default.model == "fake"
    assert by_default.object == "list"
    assert by_default.usage.model_dump()["prompt_tokens"] == by_default.usage.total_tokens == 6


def test_base64_is_little_endian_float32(http: httpx.Client) -> None:
    (text,) = vectors(post(http, input="x", encoding_format="base64"))
    assert isinstance(text, str)
    raw = base64.b64decode(text)
    assert len(raw) == 4 * 8
    assert np.frombuffer(raw, "<f4").tolist() == expected(ids("x"))


@pytest.mark.parametrize("given", ["ab", ["ab"], [BOS, 97, 98], [[BOS, 97, 98]]], ids=str)
def test_four_forms_of_input_agree(http: httpx.Client, given: Any) -> None:
    assert vectors(post(http, input=given)) == [expected(ids("ab"))]


@pytest.mark.parametrize("field", ["encoding_format", "dimensions", "user", "pooling", "normalize", "priority"])
def test_null_means_absent(http: httpx.Client, field: str) -> None:
    assert vectors(post(http, input="x", **{field: None})) == [expected(ids("x"))]


@pytest.mark.parametrize("dimensions", [1, 5, 8])
def test_dimensions_up_to_the_native_size(client: openai.OpenAI, dimensions: int) -> None:
    answer = client.embeddings.create(model="fake", input="x", dimensions=dimensions)
    assert answer.data[0].embedding == expected(ids("x"), dimensions=dimensions)
    assert len(answer.data[0].embedding) == dimensions
    assert np.linalg.norm(answer.data[0].embedding) == pytest.approx(1)


def test_pooling_and_length_are_chosen_per_request(server: FakeServer, http: httpx.Client) -> None:
    (vector,) = vectors(post(http, input="x", pooling="mean", normalize=False))
    assert vector == expected(ids("x"), pooling="mean", normalize=False)
    assert server.engine.embedded[-1][1] == PoolingParams(pooling="mean", normalize=False)


def test_what_vllm_has_beside(server: FakeServer, http: httpx.Client) -> None:
    post(http, input="abcdef", add_special_tokens=False, truncate_prompt_tokens=2, cache_salt="s").raise_for_status()
    prompt, _, options = server.engine.embedded[-1]
    assert prompt == tuple(b"ef")
    assert options["cache_salt"] == "s"
    post(http, input="abcdef", truncate_prompt_tokens=2, truncation_side="right").raise_for_status()
    assert server.engine.embedded[-1][0] == (BOS, ord("a"))
    post(http, input="abc" * 400, truncate_prompt_tokens=-1).raise_for_status()
    assert len(server.engine.embedded[-1][0]) == server.engine.info.max_model_len


def test_an_input_as_long_as_the_context_fits_and_one_longer_is_told_the_numbers(http: httpx.Client) -> None:
    assert len(vectors(post(http, input=[[97] * 512]))) == 1
    error = post(http, input=["a", "b" * 600]).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "input[1]"
    assert re.search(r"holds 512 tokens: (601|at least \d+) were given", error["message"])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [[97], []]}, "input"),
        ({"input": ["a", 97]}, "input"),
        ({"input": ["a", [97]]}, "input"),
        ({"input": [97, 1.5]}, "input"),
        ({"input": None}, "input"),
        ({"input": {"a": "b"}}, "input"),
        ({"input": [[97, 100000]]}, "input"),
        ({"input": ["a", "b"], "dimensions": 9}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": "8"}, "dimensions"),
        ({"input": "a", "encoding_format": ""}, "encoding_format"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "pooling": "cls"}, "pooling"),
        ({"input": "a", "normalize": "yes"}, "normalize"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncation_side": "left"}, "truncation_side"),
        ({"input": "a", "priority": 3}, "priority"),
        ({"input": "a", "cache_salt": ""}, "cache_salt"),
        ({"input": "a", "embed_dtype": "float16"}, "embed_dtype"),
        ({"input": "a", "endianness": "big"}, "endianness"),
        ({"input": "a", "messages": []}, "messages"),
        ({}, "input"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_by_name(http: httpx.Client, body: dict[str, Any], param: str) -> None:
    response = post(http, **body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_another_model_is_not_found(http: httpx.Client) -> None:
    assert post(http, input="a", model="text-embedding-3-small").status_code == 404


def test_2048_inputs_are_taken_in_turns_and_answered_in_order(server: FakeServer, http: httpx.Client) -> None:
    server.engine.most_live = 0
    inputs = [[97, 98, index % 200] for index in range(MAX_INPUTS)]
    response = post(http, input=inputs)
    assert vectors(response) == [expected(each) for each in inputs]
    assert 8 < server.engine.most_live <= WAITING_PER_PLACE * server.engine.info.max_num_seqs
    assert post(http, input=[*inputs, [97]]).json()["error"]["param"] == "input"


def test_a_client_that_leaves_ends_all_of_its_inputs(server: FakeServer) -> None:
    before = finished(scrape(server.url)).get("abort", 0)
    server.in_loop(server.engine.gate.clear)
    try:
        with httpx.Client(base_url=server.url, timeout=0.5) as impatient, pytest.raises(httpx.ReadTimeout):
            post(impatient, input=["a"] * 40)
        wait_until(lambda: not server.engine.live, "all inputs are ended")
        wait_until(lambda: finished(scrape(server.url)).get("abort", 0) == before + 40, "they count as aborted")
    finally:
        server.in_loop(server.engine.gate.set)


def test_one_that_fails_ends_the_others_and_is_told(server: FakeServer, http: httpx.Client) -> None:
    server.engine.fail_after["bad"] = 0
    try:
        response = post(http, input=["good", "bad", "good"] * 20)
    finally:
        del server.engine.fail_after["bad"]
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "the row holds NaN"
    assert response.json()["error"]["code"] == "embedding_failed"
    assert not server.engine.live
    assert vectors(post(http, input="good")) == [expected(ids("good"))]


def test_a_full_queue_is_429(server: FakeServer, http: httpx.Client) -> None:
    server.engine.queue_full = True
    try:
        response = post(http, input=["a", "b"])
    finally:
        server.engine.queue_full = False
    assert response.status_code == 429
    assert response.headers["retry-after"] == "2"


def test_metrics_count_inputs(server: FakeServer, http: httpx.Client) -> None:
    before = scrape(server.url)
    post(http, input=["abc", "de"]).raise_for_status()
    after = scrape(server.url)

    def grown(name: str, extra: str = "") -> float:
        return after[name, extra] - before[name, extra]

    assert grown("vllm:request_success_total", "stop") == 2
    assert grown("vllm:e2e_request_latency_seconds_count") == 2
    assert grown("vllm:request_prompt_tokens_sum") == 7
    assert grown("vllm:request_inference_time_seconds_count") == 2
    assert grown("vllm:time_to_first_token_seconds_count") == 0


def test_many_clients_get_their_own(server: FakeServer) -> None:
    barrier = threading.Barrier(6)

    def ask(client_index: int) -> bool:
        inputs = [f"{client_index} {i}" for i in range(30)]
        barrier.wait()
        with httpx.Client(base_url=server.url, timeout=30) as http:
            return vectors(post(http, input=inputs)) == [expected(ids(each)) for each in inputs]

    with ThreadPoolExecutor(6) as clients:
        assert all(clients.map(ask, range(6)))


def test_the_answer_holds_plain_json(http: httpx.Client) -> None:
    answer = json.loads(post(http, input="a" * 40).content)
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"}
    assert answer["usage"] == {
        "prompt_tokens": 41,
        "total_tokens": 41,
        "prompt_tokens_details": {"cached_tokens": 32},
    }


def test_langchain(server: FakeServer) -> None:
    """With texts: by default it sends ids that a tokenizer of OpenAI's gives, and these are not this model's."""
    langchain = pytest.importorskip("langchain_openai")
    made = langchain.OpenAIEmbeddings(
        model="fake", base_url=f"{server.url}/v1", api_key="none", check_embedding_ctx_length=False
    )
    assert made.embed_documents(["one", "two"]) == [expected(ids("one")), expected(ids("two"))]
    assert made.embed_query("three") == expected(ids("three"))
