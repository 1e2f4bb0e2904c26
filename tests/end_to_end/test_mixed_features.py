"""Random mixtures of what a request may ask for: shapes, calls, reasoning and its budget, stops, penalties, sessions,
salts, logprobs. A server with hardly any memory, under load, gives the answers of one that has time and room, streamed
or not."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.end_to_end.conftest import serving
from tests.end_to_end.test_constrained_calls import DIGIT, THINKING

COUNT = 40
SCHEMA = {"type": "object", "properties": {"n": DIGIT}, "required": ["n"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("first", "A-x_1")]
NAMED = {"type": "function", "function": {"name": "first"}}
WORDS = ["the", "sheet", "ünï", "日本", "<think>", "</think>", "<|im_end|>", "<tool_call>", '{"name":', "🙂"]
OPTIONS: list[list[dict[str, Any]]] = [
    [{"temperature": 0}, {"temperature": 0.7}, {"temperature": 1.5, "top_k": 50}, {"temperature": 1, "min_p": 0.05}],
    [{}, {"n": 2}, {"n": 3}],
    [{}, {}, {"stop": ["e", "th"]}, {"stop": ["</think>"]}, {"stop": ["\n"], "include_stop_str_in_output": True}],
    [{}, {}, {"min_tokens": 5}, {"repetition_detection": {"max_pattern_size": 4, "min_count": 2}}],
    [{}, {}, {"repetition_penalty": 1.3}, {"presence_penalty": -1}, {"logit_bias": {"20": 5, "40": -100}}],
    [{}, {}, {"session_id": "a"}, {"cache_salt": "ü"}, {"truncate_prompt_tokens": 20}],
    [{}, {}, {"logprobs": True, "top_logprobs": 2}, {"return_token_ids": True}],
    [{}, {"chat_template_kwargs": {"thinks": True}}, {"thinking_token_budget": 5}, {"include_reasoning": False}],
    [{}, {"tools": TOOLS, "tool_choice": "required"}, {"tools": TOOLS, "tool_choice": NAMED}, {"tools": TOOLS}],
]
SHAPES: list[dict[str, Any]] = [
    {"structured_outputs": {"regex": "[a-z ]{3,20}"}},
    {"structured_outputs": {"choice": ["yes", "日本", "a\nb"]}},
    {"response_format": {"type": "json_object"}},
]


def random_body(chance: random.Random) -> dict[str, Any]:
    text = " ".join(chance.choices(WORDS, k=chance.choice([1, 10, 40])))
    body = {"messages": [{"role": "user", "content": text}], "seed": chance.randrange(2**40)}
    body["max_tokens"] = chance.choice([6, 30, 80])
    for options in OPTIONS:
        body |= chance.choice(options)
    return body if "tools" in body or chance.random() < 0.6 else body | chance.choice(SHAPES)


def ask(url: str, body: dict[str, Any], *, stream: bool = False) -> list[Any]:
    """Per choice: reasoning, content, calls, ids, logprobs, why it ended; and the use of tokens."""
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body | options, timeout=120)
    assert answer.status_code == 200, answer.text
    events = answer.text.split("\n\n")[:-2] if stream else [answer.text]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    choices = [[c for chunk in chunks for c in chunk["choices"] if c["index"] == i] for i in range(body.get("n", 1))]
    usage = chunks[-1]["usage"]
    return [[added_up(parts) for parts in choices], usage["prompt_tokens"], usage["completion_tokens"]]


def added_up(parts: list[dict[str, Any]]) -> list[Any]:
    said = [part["delta"] if "delta" in part else part["message"] for part in parts]
    texts = ["".join(delta.get(name) or "" for delta in said) for name in ("reasoning", "content")]
    calls: list[list[str]] = []
    for position, call in [pair for delta in said for pair in enumerate(delta.get("tool_calls") or [])]:
        index = call.get("index", position)
        calls += [["", ""]] * (index + 1 - len(calls))
        name, arguments = call["function"].get("name") or "", call["function"].get("arguments") or ""
        calls[index] = [calls[index][0] + name, calls[index][1] + arguments]
    ids = [token for part in parts for token in part.get("token_ids") or []]
    rows = [row for part in parts for row in (part.get("logprobs") or {}).get("content") or []]
    return [texts, calls, ids, rows, parts[-1]["finish_reason"], parts[-1]["stop_reason"]]


Asked = list[tuple[dict[str, Any], list[Any]]]
TIGHT = {
    "num_kv_blocks": 64,
    "max_num_batched_tokens": 37,
    "max_num_seqs": 9,
    "kv_host_memory_bytes": 300_000,
    "admission_conservativeness": 0.0,
}


@pytest.fixture(scope="module")
def alone(tiny_file: str) -> Asked:
    """Bodies and what is answered to each by itself."""
    chance = random.Random(6)
    bodies = [random_body(chance) for _ in range(COUNT)]
    with serving(tiny_file, chat_template=THINKING) as roomy:
        return [(body, ask(roomy.url, body)) for body in bodies]


@pytest.mark.parametrize(
    "fields",
    [{}, {"speculation": "suffix", "num_speculative_tokens": 5, "async_scheduling": True}],
    ids=["", "guessed ahead, planned ahead"],
)
def test_mixtures_have_their_answers_in_any_company(tiny_file: str, alone: Asked, fields: dict[str, Any]) -> None:
    chance = random.Random(7)
    with serving(tiny_file, chat_template=THINKING, **TIGHT, **fields) as server, ThreadPoolExecutor(12) as pool:
        for stream in (False, True):
            order = chance.sample(alone, COUNT)
            answers = pool.map(lambda asked, stream=stream: ask(server.url, asked[0], stream=stream), order)
            for (body, expected), answer in zip(order, answers, strict=True):
                assert answer == expected, body
        counters = httpx.get(f"{server.url}/load").json()["counters"]
    assert counters["preemptions"] > 0 and counters["accepted_draft_tokens"] >= (200 if fields else 0)
