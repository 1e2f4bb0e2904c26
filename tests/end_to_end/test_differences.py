"""The same thing asked in two ways must give one answer: over HTTP, with a real engine."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo import LLM, SamplingParams
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from tests.effort import times
from tests.end_to_end.conftest import Served, serving
from tests.server.test_metrics import scrape

BLOCK = 16
ANSWER = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "logprobs": 2}


def post(served: Served, path: str = "/v1/completions", **body: Any) -> dict[str, Any]:
    answer = httpx.post(served.server.url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A tiny model whose vocabulary is SentencePiece's."""
    file = str(write_tiny_model(tmp_path_factory.mktemp("models") / "gemma.gguf", TinyModel(architecture="gemma3")))
    with serving(file) as server:
        yield Served("gemma", file, server)


LENGTHS = [1, 2, *(k * BLOCK + more for k in (1, 2, 4, 31) for more in (-1, 0, 1))]


def test_a_prefix_hit_of_any_length_changes_nothing(tiny: Served) -> None:
    """Prompts around the borders of blocks and steps: without a cache, cold, warm, and after the cache was emptied;
    then prompts that share a part of theirs."""
    prompts = [[(7 * length + i * i) % 400 + 8 for i in range(length)] for length in LENGTHS]
    whole = prompts[-1]
    prompts += [[*whole[: len(whole) * share // 10], *range(20, 50)] for share in range(1, 10)]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)
    common: dict[str, Any] = {"threads": 1, "max_model_len": 768, "num_kv_blocks": 500, "max_num_batched_tokens": 64}

    def answers(llm: LLM) -> list[Any]:
        outputs = [llm.generate([prompt], params)[0].outputs[0] for prompt in prompts]
        return [(o.token_ids, [(row.token_ids, row.logprobs) for row in o.logprobs or ()]) for o in outputs]

    with LLM(tiny.file, enable_prefix_caching=False, **common) as llm:
        expected = answers(llm)
    with LLM(tiny.file, **common) as llm:
        assert answers(llm) == expected, "cold"
        before = llm.load().counters["cached_tokens"]
        assert answers(llm) == expected, "warm"
        assert llm.load().counters["cached_tokens"] - before > sum(LENGTHS) * 3 // 4
        assert llm.reset_prefix_cache()
        assert answers(llm) == expected, "emptied"


@pytest.mark.parametrize("chat", [False, True])
def test_text_is_what_its_ids_decode_to(sentencepiece: Served, tiny: Served, chat: bool) -> None:
    for served in (tiny, sentencepiece):
        for seed in range(6):
            given: dict[str, Any] = {"max_tokens": 40, "temperature": 3, "seed": seed, "return_token_ids": True}
            prompt = "x" * (seed + 1)
            if chat:
                choice = post(served, "/v1/chat/completions", messages=[{"role": "user", "content": prompt}], **given)[
                    "choices"
                ][0]
                text = choice["message"]["content"]
            else:
                choice = post(served, prompt=prompt, **given)["choices"][0]
                text = choice["text"]
            ids = [i for i in choice["token_ids"] if i not in served.server.engine.info.eos_token_ids]
            told = post(served, "/detokenize", tokens=ids, skip_special_tokens=True)["prompt"]
            assert text == told if chat else text.strip(" ") == told.strip(" ")
            again = post(served, prompt=choice["prompt_token_ids"] + choice["token_ids"], max_tokens=1)
            assert again["usage"]["prompt_tokens"] == len(choice["prompt_token_ids"]) + len(choice["token_ids"])


@pytest.mark.parametrize("stream", [False, True])
def test_echoed_tokens_spell_the_text(sentencepiece: Served, stream: bool) -> None:
    """Of a SentencePiece vocabulary, where spaces stand at the beginnings of pieces."""
    for prompt in ("\n1. Carol has 20", "  two  spaces ", "naïve 世界 😀"):
        body = {"prompt": prompt, "echo": True, "stream": stream, **ANSWER}
        answer = httpx.post(f"{sentencepiece.server.url}/v1/completions", json=body, timeout=60)
        parts = (
            [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n")[:-2]]
            if stream
            else [answer.json()]
        )
        choices = [part["choices"][0] for part in parts if part["choices"]]
        text = "".join(choice["text"] for choice in choices)
        joined = {
            name: [item for choice in choices for item in choice["logprobs"][name]]
            for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs")
        }
        ids = post(sentencepiece, "/tokenize", prompt=prompt)["tokens"]
        assert text.startswith(prompt)
        assert {len(items) for items in joined.values()} == {len(ids) + 12}
        assert joined["token_logprobs"][0] is None and None not in joined["token_logprobs"][1:]
        assert joined["text_offset"] == sorted(joined["text_offset"])
        spelled = zip(joined["tokens"], pairwise([*joined["text_offset"], len(text)]), strict=True)
        plain = [(token, text[a:b]) for token, (a, b) in spelled if not token.startswith(("bytes:", "<"))]
        assert all(token == part for token, part in plain if "\ufffd" not in part), plain


def test_the_first_tokens_are_those_of_a_longer_answer(tiny: Served) -> None:
    """For every length, by ids and by text, but for a character that is cut."""
    given = {"prompt": "x", "temperature": 3, "seed": 2, "ignore_eos": True, "return_token_ids": True}
    longest = post(tiny, max_tokens=40, **given)["choices"][0]
    for count in range(1, 40):
        shorter = post(tiny, max_tokens=count, **given)["choices"][0]
        assert shorter["token_ids"] == longest["token_ids"][:count]
        assert longest["text"].startswith(shorter["text"].removesuffix("\ufffd"))
        assert shorter["finish_reason"] == "length"


@settings(max_examples=times(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 3),
    start=st.integers(0, 60),
    size=st.integers(1, 12),
    include=st.booleans(),
    stream=st.booleans(),
)
def test_a_stop_string_cuts_every_choice_alike(
    tiny: Served, seed: int, start: int, size: int, include: bool, stream: bool
) -> None:
    """Text, ids, logprobs and usage of all choices end together, at the first place of any piece of any of them."""
    given = {"prompt": "hello", "n": 2, "seed": seed, "temperature": 1.5, "max_tokens": 32, "ignore_eos": True}
    given |= {"return_token_ids": True, "logprobs": 1}
    wholes = {choice["index"]: choice for choice in post(tiny, **given)["choices"]}
    sound = max(wholes[0]["text"].split("\ufffd"), key=len)  # a character that is cut is none to look for
    stop = sound[start % len(sound) :][:size]
    body = given | {"stop": [stop], "include_stop_str_in_output": include, "stream": stream}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    answer = httpx.post(f"{tiny.server.url}/v1/completions", json=body, timeout=60)
    lines = answer.text.split("\n\n")[:-2] if stream else [answer.text]
    parts = [json.loads(line.removeprefix("data: ")) for line in lines]
    usage = parts[-1]["usage"]
    num_tokens = 0
    for index, whole in wholes.items():
        mine = [choice for part in parts for choice in part["choices"] if choice["index"] == index]
        at = whole["text"].find(stop)
        end = len(whole["text"]) if at < 0 else at + (len(stop) if include else 0)
        assert "".join(choice["text"] for choice in mine) == whole["text"][:end]
        assert mine[-1]["finish_reason"] == ("length" if at < 0 else "stop")
        ids = [i for choice in mine for i in choice["token_ids"]]
        assert ids == whole["token_ids"][: len(ids)]
        offsets = [offset for choice in mine for offset in choice["logprobs"]["text_offset"]]
        values = [value for choice in mine for value in choice["logprobs"]["token_logprobs"]]
        assert len(offsets) == len(values) <= len(ids)
        assert values == whole["logprobs"]["token_logprobs"][: len(values)]
        assert all(offset < end for offset in offsets) or at < 0
        num_tokens += len(ids)
    assert usage["completion_tokens"] == num_tokens


def test_usage_is_what_was_tokenized_returned_and_counted(tiny: Served) -> None:
    """Metrics count each answer as a request, so the prompt of three answers thrice; usage counts it once."""
    before = scrape(tiny.server.url)
    usages, prompts_of_answers = [], 0
    for body in (
        {"prompt": "hello there"},
        {"prompt": ["hello there", "x" * 40], "n": 3},
        {"messages": [{"role": "user", "content": "hello"}], "n": 2},
        {"prompt": "stop here", "logit_bias": {str(tiny.server.engine.info.eos_token_ids[0]): 100}},
    ):
        chat = "messages" in body
        path = "/v1/chat/completions" if chat else "/v1/completions"
        body |= {"max_tokens": 7, "temperature": 1, "seed": 5}
        answer = post(tiny, path, return_token_ids=True, **body)
        texts = [None] if chat else body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        ids = [
            post(tiny, "/tokenize", **({"messages": body["messages"]} if text is None else {"prompt": text}))["tokens"]
            for text in texts
        ]
        usage = answer["usage"]
        assert usage["prompt_tokens"] == sum(map(len, ids))
        assert usage["completion_tokens"] == sum(len(choice["token_ids"]) for choice in answer["choices"])
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        streamed = httpx.post(
            tiny.server.url + path,
            json=body | {"stream": True, "stream_options": {"include_usage": True}},
            timeout=60,
        )
        last = json.loads(streamed.text.split("\n\n")[-3].removeprefix("data: "))["usage"]
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        assert [last[name] for name in names] == [usage[name] for name in names]
        usages += [usage, last]
        prompts_of_answers += 2 * usage["prompt_tokens"] * body.get("n", 1)
    after = scrape(tiny.server.url)

    def grown(name: str) -> float:
        return after[name, ""] - before[name, ""]

    assert grown("vllm:generation_tokens_total") == sum(usage["completion_tokens"] for usage in usages)
    assert grown("vllm:request_generation_tokens_sum") == sum(usage["completion_tokens"] for usage in usages)
    assert grown("vllm:request_prompt_tokens_sum") == grown("vllm:prompt_tokens_total") == prompts_of_answers


TURNS = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"


@pytest.mark.parametrize("template", [TURNS, TURNS.replace("{{ bos_token }}", "")], ids=["with", "without"])
def test_every_way_to_chat_begins_with_one_bos(tmp_path: Path, template: str) -> None:
    """Whether the template writes it or leaves it to the tokenizer: OpenAI's and Anthropic's endpoints, and Python."""
    file = str(write_tiny_model(tmp_path / "gemma.gguf", TinyModel(architecture="gemma3")))
    messages = [{"role": "user", "content": "hello"}]
    with serving(file, chat_template=template) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        ids = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
        chat = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
        told = http.post("/v1/chat/completions", json=chat).json()["choices"][0]["prompt_token_ids"]
        response = http.post("/v1/responses", json={"input": "hello", "max_output_tokens": 16}).json()["usage"]
        message = http.post("/v1/messages", json={"messages": messages, "max_tokens": 1}).json()["usage"]
        assert response["input_tokens"] == message["input_tokens"] + message["cache_read_input_tokens"] == len(ids)
        counted = http.post("/v1/messages/count_tokens", json={"messages": messages}).json()["input_tokens"]
        assert counted == len(ids)
    with LLM(file, chat_template=template, max_model_len=64, threads=1) as llm:
        assert ids == told == llm.render_chat(messages)
        assert ids.count(ids[0]) == 1
        (answer,) = llm.chat([messages], SamplingParams(max_tokens=1))
        assert list(answer.prompt_token_ids) == ids
        assert ids[0] == llm.generate(["x"], SamplingParams(max_tokens=1))[0].prompt_token_ids[0]
