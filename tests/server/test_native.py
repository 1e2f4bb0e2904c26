"""Octavo's own endpoints, the model list, and /openapi.json."""

import re

import httpx
import openai
import pytest

import octavo
from tests.server.conftest import fake
from tests.server.fake_engine import BOS, IM_END
from tests.server.running import running_server
from tests.server.test_fields import DOCS
from tests.server.test_refusals import check_error


def test_models(client: openai.OpenAI) -> None:
    models = list(client.models.list())
    assert [model.id for model in models] == ["fake", "fake-alias"]
    assert client.models.retrieve("fake-alias").object == "model"
    assert models[0].model_extra is not None
    assert models[0].model_extra["max_model_len"] == 512


def test_tokenize_and_back(http: httpx.Client) -> None:
    answer = http.post("/tokenize", json={"prompt": "hi 😀"}).json()
    assert answer["tokens"][0] == BOS
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 512
    assert http.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": "<|bos|>hi 😀"}
    body = {"tokens": answer["tokens"], "skip_special_tokens": True}
    assert http.post("/detokenize", json=body).json() == {"prompt": "hi 😀"}


def test_special_tokens_in_a_text_are_text_unless_asked(http: httpx.Client) -> None:
    body = {"prompt": "<|im_end|>", "add_special_tokens": False}
    assert http.post("/tokenize", json=body).json()["count"] == 10
    assert http.post("/tokenize", json=body | {"parse_special_tokens": True}).json()["tokens"] == [IM_END]


def test_tokenize_a_conversation(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "return_token_strs": True}
    answer = http.post("/tokenize", json=body).json()
    assert "".join(answer["token_strs"]) == "<|bos|><|im_start|>user\nhi<|im_end|><|im_start|>assistant\n"
    closed = http.post("/tokenize", json=body | {"add_generation_prompt": False}).json()
    assert closed["token_strs"][-1] == "<|im_end|>"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "x", "colour": 1}, "colour"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
        ("/detokenize", {"tokens": "abc"}, "tokens"),
    ],
)
def test_token_endpoints_name_what_is_wrong(http: httpx.Client, path: str, body: object, param: str) -> None:
    error = check_error(http.post(path, json=body), 400)
    assert (error["param"] or "").partition("[")[0] == param


def test_probes_and_version(http: httpx.Client) -> None:
    assert http.get("/health").status_code == 200
    assert http.get("/ready").status_code == 200
    assert http.get("/version").json() == {"version": octavo.__version__}
    load = http.get("/load").json()
    assert load["num_running"] == 0
    assert load["num_http_in_flight"] == 0
    assert load["num_blocks"] == 1000


def test_the_load_card_says_what_the_engine_can_and_how_busy_it_is(http: httpx.Client) -> None:
    card = http.get("/load").json()
    fixed = {"version", "models", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"}
    assert fixed | {"kv_bytes_per_token", "kv_root"} <= set(card)
    assert (card["models"], card["max_model_len"], card["block_size"]) == (["fake", "fake-alias"], 512, 16)
    assert (card["num_pinned_blocks"], card["num_waiting_tokens"], card["decode_step_s"]) == (7, 300, 0.02)
    assert card["prefill_tokens_per_s"] is None and card["num_waiting_cached_tokens"] is None
    assert card["tiers"] == [{"tier": "disk", "num_blocks": 3, "used_bytes": 30, "capacity_bytes": 100}]
    assert 0 <= card["age_s"] < 10 and "published_s" not in card


def test_every_field_of_the_load_card_is_in_the_docs(http: httpx.Client) -> None:
    page = (DOCS / "server.md").read_text()
    assert [name for name in http.get("/load").json() if f"| `{name}` |" not in page] == []


def test_a_dead_engine_has_no_load() -> None:
    with running_server(fake) as running:
        running.in_loop(lambda: running.engine.kill("it is gone"))
        check_error(httpx.get(f"{running.url}/load"), 503)


def test_openapi_refers_to_nothing_that_is_missing(http: httpx.Client) -> None:
    page = http.get("/openapi.json")
    names = set(re.findall(r'"\$ref":\s*"#/components/schemas/([^"]+)"', page.text))
    assert names
    assert names <= set(page.json()["components"]["schemas"])
    assert page.text.count('"$ref"') == len(re.findall(r'"\$ref":\s*"#/components/schemas/', page.text))


def test_openapi_knows_the_bodies(http: httpx.Client) -> None:
    schema = http.get("/openapi.json").json()
    body = schema["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"prompt", "temperature", "top_k"} <= set(body["properties"])
    assert set(schema["paths"]) >= {"/v1/chat/completions", "/tokenize", "/metrics", "/v1/models"}


def test_request_ids(http: httpx.Client) -> None:
    assert http.get("/version", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    made = http.get("/version", headers={"X-Request-Id": "bad id"}).headers["x-request-id"]
    assert len(made) == 32
    assert http.get("/nowhere").headers["x-request-id"]
