"""Every parameter over HTTP: completions and chat have the tokens and logprobs that the Python API has, which other
tests have worked out again."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import openai
import pytest

from octavo.engine.output import CompletionOutput
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from tests.equality.http import serving
from tests.sampling.conftest import COMMON, Both
from tests.sampling.parameters import ALONE, params_of
from tests.sampling.test_every_path import prompts

SENT = {
    **{name: fields for name, fields in ALONE.items() if not {"reasoning", "bad_words_token_ids"} & set(fields)},
    "logits_processors": {
        "temperature": 0.0,
        "logits_processors": {"nudge": {"token_id": 9, "by": 2.5}},
        "logprobs": 1,
    },
}
"""Settings in which all can be said over HTTP; budgets and words of token ids cannot."""
MESSAGES = [{"role": "user", "content": "How do I fold a book?"}]


def body_of(params: SamplingParams, *, chat: bool) -> dict[str, Any]:
    """What a client sends."""
    body: dict[str, Any] = msgspec.to_builtins(params) | {"max_tokens": params.max_tokens, "return_token_ids": True}
    body |= {"logit_bias": {str(i): bias for i, bias in (params.logit_bias or {}).items()}}
    body |= {"return_tokens_as_token_ids": True}
    if params.structured_outputs is not None:
        body |= {"structured_outputs": {"regex": params.structured_outputs.source}}
    if chat and params.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": params.logprobs}
    return body


def listed(row: LogprobRow, params: SamplingParams) -> dict[str, float]:
    """What a response shows beside a token: named ids with the token, or as many as were asked for."""
    pairs = [(f"token_id:{i}", logprob) for i, logprob in zip(row.token_ids, row.logprobs, strict=True)]
    return dict(pairs if params.logprob_token_ids else pairs[1:])


def check_logprobs(shown: list[tuple[str, float, dict[str, float]]], want: CompletionOutput, p: SamplingParams) -> None:
    assert len(shown) == len(want.logprobs or ())
    for (token, logprob, top), row in zip(shown, want.logprobs or (), strict=True):
        assert token == f"token_id:{row.token_ids[0]}" and logprob == pytest.approx(row.logprobs[0], abs=1e-6)
        assert top == pytest.approx(listed(row, p), abs=1e-6)
        assert not p.logprob_token_ids or list(top) == list(listed(row, p))  # in the order in which they were named


@pytest.mark.parametrize("name", SENT)
def test_completions(both: Both, name: str) -> None:
    params, prompt = params_of(SENT[name]), prompts(12)[list(SENT).index(name) % 12]
    (want,) = both.llm.generate([prompt], params)
    answer = both.http.post("/v1/completions", json=body_of(params, chat=False) | {"prompt": prompt})
    assert answer.status_code == 200, answer.text
    for choice, output in zip(answer.json()["choices"], want.outputs, strict=True):
        assert tuple(choice["token_ids"]) == output.token_ids
        assert (choice["finish_reason"], choice["stop_reason"]) == (output.finish_reason, output.stop_reason)
        assert (choice["logprobs"] is None) == (params.logprobs is None)
        if params.logprobs is not None:
            seen = choice["logprobs"]
            tops = [
                {i: v for i, v in top.items() if params.logprob_token_ids or i in listed(row, params)}
                for top, row in zip(seen["top_logprobs"], output.logprobs or (), strict=True)
            ]
            check_logprobs(list(zip(seen["tokens"], seen["token_logprobs"], tops, strict=True)), output, params)


@pytest.mark.parametrize("name", SENT)
def test_chat(both: Both, name: str) -> None:
    params = params_of(SENT[name])
    (want,) = both.llm.chat([MESSAGES], params)
    answer = both.http.post("/v1/chat/completions", json=body_of(params, chat=True) | {"messages": MESSAGES})
    assert answer.status_code == 200, answer.text
    for choice, output in zip(answer.json()["choices"], want.outputs, strict=True):
        assert tuple(choice["token_ids"]) == output.token_ids
        assert (choice["finish_reason"], choice["stop_reason"]) == (output.finish_reason, output.stop_reason)
        if params.logprobs is not None:
            shown = [
                (entry["token"], entry["logprob"], {top["token"]: top["logprob"] for top in entry["top_logprobs"]})
                for entry in choice["logprobs"]["content"]
            ]
            check_logprobs(shown, output, params)
            assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in choice["logprobs"]["content"])


NEUTRAL = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "logit_bias": {},
    "stop": [],
    "stop_token_ids": [],
    "bad_words": [],
    "allowed_token_ids": None,
    "min_tokens": 0,
    "logprob_token_ids": [],
    "repetition_detection": {"max_pattern_size": 0},
    "thinking_token_budget": -1,
    "logits_processors": {},
    "truncate_prompt_tokens": -1,
    "truncation_side": "left",
    "n": 1,
}


@pytest.mark.parametrize(
    ("path", "prompt"), [("/v1/completions", {"prompt": [9, 10, 11]}), ("/v1/chat/completions", {"messages": MESSAGES})]
)
def test_neutral_values_change_nothing(both: Both, path: str, prompt: dict[str, Any]) -> None:
    body = prompt | {"max_tokens": 12, "temperature": 1, "seed": 4, "return_token_ids": True}
    plain = both.http.post(path, json=body).json()["choices"]
    for more in (NEUTRAL, *({name: value} for name, value in NEUTRAL.items()), dict.fromkeys(NEUTRAL)):
        answer = both.http.post(path, json=body | more)
        assert answer.status_code == 200, (more, answer.text)
        assert answer.json()["choices"] == plain, more


def test_a_repetition_is_named_streamed_or_not(both: Both) -> None:
    params = params_of(ALONE["repetition_detection"])
    body = body_of(params, chat=False) | {"prompt": [9, 10], "bad_words_token_ids": None, "logit_bias": {"30": 100}}
    body = {name: value for name, value in body.items() if name != "bad_words_token_ids"}
    body["repetition_detection"] = {"max_pattern_size": 1, "min_count": 5}
    choice = both.http.post("/v1/completions", json=body).json()["choices"][0]
    assert choice["token_ids"] == [30] * 5
    assert (choice["finish_reason"], choice["stop_reason"]) == ("repetition", "repetition_detected")
    streamed = both.http.post("/v1/completions", json=body | {"stream": True}).text
    assert '"finish_reason":"repetition"' in streamed.replace(" ", "") and "repetition_detected" in streamed
    metrics = both.http.get("/metrics").text
    assert [
        line for line in metrics.splitlines() if 'finished_reason="repetition"' in line and not line.endswith(" 0.0")
    ]


REFUSED = [
    ({"logits_processors": {"nobody": {}}}, "logits_processors", "this engine has nudge"),
    ({"logits_processors": {"nudge": {"token_id": 10**6}}}, "logits_processors.nudge", "must be below"),
    ({"logits_processors": {"nudge": {}}}, "logits_processors.nudge", "failed at these arguments"),
    ({"logits_processors": {"nudge": 5}}, "logits_processors.nudge", "must be an object"),
    ({"logprob_token_ids": [5]}, "logprob_token_ids", "needs logprobs"),
    ({"logprob_token_ids": [10**6]}, "logprob_token_ids", "needs logprobs"),
    ({"logprob_token_ids": [5, 5]}, "logprob_token_ids", "twice"),
    ({"logprob_token_ids": list(range(129))}, "logprob_token_ids", "at most 128"),
    ({"thinking_token_budget": 5}, "thinking_token_budget", "has no markers to count from"),
    ({"thinking_token_budget": "many"}, "thinking_token_budget", "integer"),
]


@pytest.mark.parametrize(("more", "param", "problem"), REFUSED)
@pytest.mark.parametrize(
    ("path", "prompt"), [("/v1/completions", {"prompt": [9]}), ("/v1/chat/completions", {"messages": MESSAGES})]
)
def test_refusals_name_field_and_rule(
    both: Both, path: str, prompt: dict[str, Any], more: dict[str, Any], param: str, problem: str
) -> None:
    answer = both.http.post(path, json=prompt | {"max_tokens": 2} | more)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param) and problem in error["message"]


def test_named_ids_beyond_the_vocabulary_are_refused(both: Both) -> None:
    body = {"prompt": [9], "max_tokens": 2, "logprobs": 1, "logprob_token_ids": [10**6]}
    answer = both.http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprob_token_ids")
    body = {"prompt": [9], "max_tokens": 0, "echo": True, "logprobs": 1, "logprob_token_ids": [5]}
    answer = both.http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprob_token_ids")


def test_echoed_prompts_list_the_most_probable_and_answers_the_named(both: Both) -> None:
    body = {"prompt": [9, 10, 11], "max_tokens": 3, "echo": True, "logprobs": 1, "logprob_token_ids": [5, 6, 7]}
    body |= {"temperature": 0, "ignore_eos": True, "return_tokens_as_token_ids": True}
    seen = both.http.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    assert seen["tokens"][:3] == ["token_id:9", "token_id:10", "token_id:11"]
    assert [len(top or {}) for top in seen["top_logprobs"][:3]] <= [0, 2, 2]
    assert all({f"token_id:{i}" for i in (5, 6, 7)} < set(top) for top in seen["top_logprobs"][3:])


@pytest.fixture(scope="module")
def thinking(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server that takes `<think>` for reasoning."""
    fields = {**COMMON, "reasoning_parser": "deepseek_r1"}
    with (
        serving(tiny_model, fields, tmp_path_factory.mktemp("thinking")) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        yield http


@pytest.mark.parametrize("budget", [0, 1, 7])
@pytest.mark.parametrize("stream", [False, True])
def test_a_budget_ends_reasoning_in_the_text(thinking: httpx.Client, budget: int, stream: bool) -> None:
    body = {"prompt": "Fold it. <think>", "max_tokens": 40, "ignore_eos": True, "seed": 3, "return_token_ids": True}
    plain = thinking.post("/v1/completions", json=body).json()["choices"][0]
    assert "</think>" not in plain["text"]
    answer = thinking.post("/v1/completions", json=body | {"thinking_token_budget": budget, "stream": stream})
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        choices = [choice for event in events for choice in event["choices"]]
        text = "".join(choice["text"] for choice in choices)
        token_ids = [i for choice in choices for i in choice["token_ids"]]
    else:
        text, token_ids = (answer.json()["choices"][0][key] for key in ("text", "token_ids"))
    assert token_ids[:budget] == plain["token_ids"][:budget]
    forced = thinking.post("/tokenize", json={"prompt": "\n</think>\n\n", "add_special_tokens": False}).json()["tokens"]
    assert token_ids[budget : budget + len(forced)] == forced
    assert text.count("</think>") == 1 and len(token_ids) == 40


def test_a_shape_binds_the_answer_behind_a_budget(thinking: httpx.Client) -> None:
    body = {"prompt": "Fold it. <think>", "max_tokens": 60, "seed": 3, "thinking_token_budget": 5}
    body |= {"structured_outputs": {"regex": "[a-f]{4}-[0-9]{2}"}, "include_stop_str_in_output": True}
    for seed in range(5):
        choice = thinking.post("/v1/completions", json=body | {"seed": seed}).json()["choices"][0]
        thought, answer = choice["text"].split("\n</think>\n\n")
        assert re.fullmatch("[a-f]{4}-[0-9]{2}", answer), choice
        assert thought and choice["finish_reason"] == "stop"


def test_prompts_of_one_request_end_alike(thinking: httpx.Client) -> None:
    body = {"prompt": ["a <think>", "b"], "max_tokens": 2, "thinking_token_budget": 1}
    error = thinking.post("/v1/completions", json=body).json()["error"]
    assert error["param"] == "thinking_token_budget" and "one by one" in error["message"]


def test_the_stock_client_reads_all_of_it(both: Both) -> None:
    more = {"repetition_detection": {"max_pattern_size": 1, "min_count": 4}, "logprob_token_ids": [5, 30]}
    with openai.OpenAI(base_url=f"{both.http.base_url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model=both.llm.info.served_model_names[0],
            messages=[{"role": "user", "content": "fold"}],
            logit_bias={"30": 100},
            logprobs=True,
            max_tokens=20,
            temperature=0,
            extra_body=more,
        )
    (choice,) = answer.choices
    assert str(choice.finish_reason) == "repetition" and choice.logprobs is not None
    assert [len(entry.top_logprobs) for entry in choice.logprobs.content or ()] == [2] * 4
