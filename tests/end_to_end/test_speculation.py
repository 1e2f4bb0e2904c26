"""What drafts have got wrong elsewhere, asked of a server that speculates and of one that does not."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest

from octavo import LLM, SamplingParams
from tests.end_to_end.conftest import serving
from tests.end_to_end.test_constrained_calls import TURNS
from tests.real_models import model_path

CONTEXT = 256
SETTINGS: dict[str, Any] = {"chat_template": TURNS, "max_model_len": CONTEXT, "block_size": 4, "num_kv_blocks": 400}
LOOK_UP = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5}
SCHEMA = {
    "type": "object",
    "properties": {
        "identifier": {"type": "integer", "minimum": 0, "maximum": 99},
        "description": {"type": "string", "maxLength": 8},
        "alternatives": {"type": "array", "items": {"enum": ["the first", "the second"]}, "maxItems": 3},
    },
    "required": ["identifier", "description", "alternatives"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("look_up", "write_down")]


@pytest.fixture(scope="module")
def plain(tiny_file: str) -> Iterator[httpx.Client]:
    """Without drafts."""
    with serving(tiny_file, **SETTINGS) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def drafting(tiny_file: str) -> Iterator[httpx.Client]:
    """With drafts by prompt lookup, and of what grammars force."""
    settings = {**SETTINGS, "speculative_config": LOOK_UP}
    with serving(tiny_file, **settings) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def complete(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", json={"temperature": 0, "ignore_eos": True, "logprobs": 1} | body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def said(answer: dict[str, Any]) -> tuple[Any, ...]:
    """All that a client sees but for names and times."""
    return answer["choices"], answer["usage"]["completion_tokens"]


def speculation_of(client: httpx.Client, request_id: str) -> dict[str, Any]:
    """The first choice's entry in the ledger of a request."""
    (choice,) = client.get(f"/v1/requests/{request_id}").raise_for_status().json()["choices"]
    return choice | (choice.pop("speculation") or {"draft_tokens": 0, "saved_steps": 0})


def test_drafts_never_get_into_the_cache(plain: httpx.Client, drafting: httpx.Client) -> None:
    """Three with one beginning, of which one leaves in the middle, fifty times over."""
    beginning = "sheet after sheet, page after page, "
    prompts = [beginning * 3 + end for end in ("sheet", "sheet after ", beginning)]
    expected = [said(complete(plain, prompt=prompt, max_tokens=24)) for prompt in prompts]

    def ask(run: int, place: int) -> None:
        if run % len(prompts) != place:
            assert said(complete(drafting, prompt=prompts[place], max_tokens=24)) == expected[place]
            return
        body = {"prompt": prompts[place], "temperature": 0, "ignore_eos": True, "max_tokens": 100, "stream": True}
        with drafting.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            assert [next(lines) for _ in range(1 + run % 7)]

    with ThreadPoolExecutor(3) as clients:
        for run in range(50):
            list(clients.map(lambda place, run=run: ask(run, place), range(len(prompts))))
    assert drafting.get("/load").json()["counters"]["draft_tokens"] > 500


def answer_of(client: httpx.Client, body: dict[str, Any]) -> tuple[list[str], str]:
    """The content, or the arguments of all calls; and why the answer ended."""
    question = {"messages": [{"role": "user", "content": "the first or the second?"}], "max_tokens": 180}
    answer = client.post("/v1/chat/completions", json=question | body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    calls = [call["function"]["arguments"] for call in choice["message"].get("tool_calls") or []]
    return calls or [choice["message"]["content"]], choice["finish_reason"]


@pytest.mark.parametrize("temperature", [0, 1])
def test_grammars_bind_drafts(plain: httpx.Client, drafting: httpx.Client, temperature: float) -> None:
    """Fifty answers by a schema or as calls, half of them greedy: valid, and those of an engine without drafts."""
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    kinds: list[dict[str, Any]] = [
        {"response_format": shape},
        {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    ]
    bodies = [kinds[i % 2] | {"temperature": temperature, "seed": i, "logit_bias": {"34": i / 5}} for i in range(25)]
    before = drafting.get("/load").json()["counters"]
    with ThreadPoolExecutor(8) as clients:
        with_drafts = list(clients.map(lambda body: answer_of(drafting, body), bodies))
        without = list(clients.map(lambda body: answer_of(plain, body), bodies))
    after = drafting.get("/load").json()["counters"]
    assert after["saved_steps"] - before["saved_steps"] > 300
    assert with_drafts == without
    whole = [texts for texts, reason in with_drafts if reason != "length"]
    assert len(whole) >= 20
    for text in [text for texts in whole for text in texts]:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_a_prompt_that_repeats_one_word(plain: httpx.Client, drafting: httpx.Client) -> None:
    asked = {"prompt": "serving" * 30, "max_tokens": 32}
    assert said(complete(drafting, **asked)) == said(complete(plain, **asked))


def test_a_prompt_that_repeats_one_word_to_a_real_model() -> None:
    path, answers = str(model_path("smollm2-135m")), []
    params = SamplingParams(temperature=0, max_tokens=96, ignore_eos=True, logprobs=1)
    for settings in ({}, {"speculative_config": LOOK_UP}):
        with LLM(path, max_model_len=512, num_kv_blocks=64, **settings) as llm:  # type: ignore[arg-type]
            (output,) = llm.generate("serving" * 48, params)
            answers.append((output.outputs[0].token_ids, output.outputs[0].logprobs))
            stats = output.ledger[0]
    assert answers[0] == answers[1]
    assert stats is not None and stats.num_saved_steps >= 10


@pytest.mark.parametrize("room", [1, 2, 3, 4, 6, 9])
def test_no_draft_reaches_beyond_the_context(plain: httpx.Client, drafting: httpx.Client, room: int) -> None:
    """The first token of an answer has none, and the last one needs none."""
    words = [20, 21, 22]
    body = {"prompt": (words * CONTEXT)[: CONTEXT - room], "logit_bias": {str(word): 30 for word in words}}
    body["max_tokens"] = room
    answer = complete(drafting, **body)
    assert said(answer) == said(complete(plain, **body))
    assert answer["usage"]["completion_tokens"] == room and answer["choices"][0]["finish_reason"] == "length"
    entry = speculation_of(drafting, answer["id"])
    assert entry["draft_tokens"] <= max(0, room - 2) * max(1, entry["steps"])
    assert entry["output_tokens"] == room and (room > 2 or entry["draft_tokens"] == 0)


def test_the_ledger_of_a_request_adds_up(drafting: httpx.Client) -> None:
    answer = complete(drafting, prompt="page after page after page", max_tokens=60, logit_bias={"9": 100})
    entry = speculation_of(drafting, answer["id"])
    assert entry["drafts"] > 5 and entry["accepted_tokens"] == sum(entry["accepted_tokens_per_pos"])
    assert entry["draft_tokens"] == entry["saved_steps"] + entry["wasted_tokens"]
    assert entry["mean_acceptance_length"] == 1 + entry["accepted_tokens"] / entry["drafts"]
    assert answer["usage"]["completion_tokens"] == entry["output_tokens"] == 60
    assert entry["steps"] + entry["saved_steps"] == 60, "the prompt fits one step, which brings the first token"
