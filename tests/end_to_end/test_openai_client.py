"""The stock client against real engines: the same text as in-process, streamed or not, alone or in a crowd."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from octavo import SamplingParams
from tests.end_to_end.conftest import SETTINGS, Served, serving
from tests.server.conftest import wait_until

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a small house at the edge of a large forest, and in it lived",
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "def add(a, b):\n    return",
    "Die Würde des Menschen ist",
    "你好，世界 😀",
    "A B C D E F G H I J K",
    "x",
]
HELLO: Any = [{"role": "user", "content": "What is the capital of France?"}]


def complete(served: Served, prompt: str | list[int], **options: Any) -> Any:
    """One completion with token ids."""
    call = {"max_tokens": 16, "temperature": 0, **options}
    extra = {"return_token_ids": True, **call.pop("extra_body", {})}
    return served.client.completions.create(model=served.file, prompt=prompt, extra_body=extra, **call)


def streamed(served: Served, prompt: str | list[int], **options: Any) -> tuple[str, list[int], str | None]:
    """Text, ids and finish reason of a streamed completion with one choice."""
    text, ids, reason = "", [], None
    for chunk in complete(served, prompt, stream=True, **options):
        choice = chunk.choices[0]
        text += choice.text
        ids += choice.model_extra["token_ids"]
        reason = choice.finish_reason
    return text, ids, reason


def sampling(index: int) -> dict[str, Any]:
    """Greedy for even requests, seeded for odd ones."""
    return {"temperature": 0} if index % 2 == 0 else {"temperature": 1.0, "seed": 1000 + index}


def test_http_equals_in_process(served: Served) -> None:
    params = [SamplingParams(max_tokens=16, logprobs=3, **sampling(i)) for i in range(len(PROMPTS))]
    local = served.local.generate(PROMPTS, params)
    for index, (prompt, expected) in enumerate(zip(PROMPTS, local, strict=True)):
        choice = complete(served, prompt, logprobs=3, **sampling(index)).choices[0]
        (twin,) = expected.outputs
        assert choice.text == twin.text
        assert tuple(choice.model_extra["token_ids"]) == twin.token_ids
        assert tuple(choice.model_extra["prompt_token_ids"]) == expected.prompt_token_ids
        assert choice.finish_reason == str(twin.finish_reason)
        assert twin.logprobs is not None
        assert (
            choice.logprobs.token_logprobs == [row.logprobs[0] for row in twin.logprobs][: len(choice.logprobs.tokens)]
        )


def test_a_crowd_gets_what_each_would_get_alone(served: Served) -> None:
    jobs = [(PROMPTS[i % len(PROMPTS)], sampling(i)) for i in range(16)]
    alone = [streamed(served, prompt, **how) for prompt, how in jobs]
    with ThreadPoolExecutor(16) as pool:
        crowd = list(pool.map(lambda job: streamed(served, job[0], **job[1]), jobs))
    assert crowd == alone
    whole = [complete(served, prompt, **how).choices[0] for prompt, how in jobs[:4]]
    assert [(one.text, one.model_extra["token_ids"], one.finish_reason) for one in whole] == alone[:4]


def test_a_long_prompt_takes_many_steps_and_streams_all_the_same(served: Served) -> None:
    messages: Any = [{"role": "user", "content": "word " * 120}]
    call: dict[str, Any] = {"model": served.file, "messages": messages, "max_tokens": 10, "temperature": 0}
    whole = served.client.chat.completions.create(**call)
    *parts, last = served.client.chat.completions.create(**call, stream=True, stream_options={"include_usage": True})
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens > 120
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content


def test_usage_is_whole_from_the_first_chunk_on(served: Served) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(complete(served, "test " * 300, max_tokens=3, stream=True, stream_options=options))
    count = len(httpx.post(f"{served.server.url}/tokenize", json={"prompt": "test " * 300}).json()["tokens"])
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {count}
    assert [chunk.usage.completion_tokens for chunk in chunks][-1] == 3


@pytest.mark.parametrize("prompt", PROMPTS[:3])
def test_fewer_tokens_are_a_prefix_of_more(served: Served, prompt: str) -> None:
    longest = complete(served, prompt, max_tokens=12).choices[0]
    for count in (1, 5, 11):
        shorter = complete(served, prompt, max_tokens=count).choices[0]
        assert shorter.model_extra["token_ids"] == longest.model_extra["token_ids"][:count]
        assert longest.text.startswith(shorter.text.rstrip("\ufffd"))


def test_a_stop_string_cuts_at_its_first_appearance(served: Served) -> None:
    text = complete(served, PROMPTS[1], max_tokens=24, extra_body={"ignore_eos": True}).choices[0].text
    for start, length in ((0, 1), (3, 2), (5, 9), (len(text) // 2, 4), (len(text) - 3, 3)):
        stop = text[start : start + length]
        for stream in (False, True):
            options = {"max_tokens": 24, "stop": [stop], "extra_body": {"ignore_eos": True}}
            if stream:
                got, _, reason = streamed(served, PROMPTS[1], **options)
            else:
                choice = complete(served, PROMPTS[1], **options).choices[0]
                got, reason = choice.text, choice.finish_reason
            assert (got, reason) == (text[: text.find(stop)], "stop")


def test_answers_of_n_are_those_of_single_requests(served: Served) -> None:
    many = complete(served, PROMPTS[0], n=4, temperature=1.0, seed=7)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.choices[0].text == complete(served, PROMPTS[0], temperature=1.0, seed=7).choices[0].text
    assert len({tuple(choice.model_extra["token_ids"]) for choice in many.choices}) == 4
    greedy = complete(served, PROMPTS[0], n=3)
    assert len({choice.text for choice in greedy.choices}) == 1
    again = complete(served, PROMPTS[0], n=4, temperature=1.0, seed=7)
    assert [choice.text for choice in again.choices] == [choice.text for choice in many.choices]


def test_echo_is_prompt_and_answer_with_logprobs_of_both(served: Served) -> None:
    plain = complete(served, PROMPTS[1], logprobs=2)
    echoed = complete(served, PROMPTS[1], logprobs=2, echo=True)
    assert echoed.choices[0].text == PROMPTS[1] + plain.choices[0].text
    logprobs, usage = echoed.choices[0].logprobs, echoed.usage
    assert len(logprobs.tokens) == usage.prompt_tokens + len(plain.choices[0].logprobs.tokens)
    assert logprobs.token_logprobs[0] is None
    assert logprobs.token_logprobs[usage.prompt_tokens :] == plain.choices[0].logprobs.token_logprobs
    scored = complete(served, PROMPTS[1], logprobs=2, echo=True, max_tokens=0)
    assert scored.choices[0].text == PROMPTS[1]
    assert scored.choices[0].logprobs.token_logprobs == logprobs.token_logprobs[: usage.prompt_tokens]
    *parts, _ = complete(served, PROMPTS[1], logprobs=2, echo=True, stream=True, stream_options={"include_usage": True})
    for field in ("tokens", "token_logprobs", "text_offset"):
        joined = [item for part in parts for item in getattr(part.choices[0].logprobs, field)]
        assert joined == getattr(logprobs, field)


def test_the_answers_ids_are_a_prompt_again(served: Served) -> None:
    first = complete(served, PROMPTS[0], max_tokens=12, extra_body={"ignore_eos": True}).choices[0].model_extra
    ids = first["prompt_token_ids"] + first["token_ids"]
    resumed = complete(served, ids[:-4], max_tokens=4, extra_body={"ignore_eos": True}).choices[0]
    assert resumed.model_extra["token_ids"] == ids[-4:]


def test_chat_is_a_completion_of_the_rendered_prompt(served: Served) -> None:
    ids = httpx.post(f"{served.server.url}/tokenize", json={"messages": HELLO}).json()["tokens"]
    chat = served.client.chat.completions.create(
        model=served.file, messages=HELLO, max_tokens=12, temperature=0, logprobs=True, top_logprobs=2
    )
    raw = complete(served, ids, max_tokens=12).choices[0]
    assert chat.choices[0].message.content == raw.text
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == len(ids)
    assert chat.choices[0].logprobs is not None
    spelled = b"".join(bytes(token.bytes or b"") for token in chat.choices[0].logprobs.content or [])
    assert spelled.decode("utf-8", "replace").startswith(raw.text)


@pytest.mark.parametrize("repeat", range(2))
def test_repeating_a_request_changes_nothing(served: Served, repeat: int) -> None:
    prompt = "The quick brown fox jumps over the lazy dog. " * (10 + repeat)
    answers = [complete(served, prompt, logprobs=5) for _ in range(3)]
    assert len({answer.choices[0].text for answer in answers}) == 1
    assert all(answer.choices[0].logprobs == answers[0].choices[0].logprobs for answer in answers)
    assert answers[1].usage.prompt_tokens_details.cached_tokens > 0


def test_ids_that_do_not_exist_are_refused_and_nothing_else_happens(served: Served) -> None:
    for options in ({"logit_bias": {"9999999": 5}}, {"extra_body": {"stop_token_ids": [10**7]}}):
        with pytest.raises(openai.BadRequestError, match="token ids run from 0 to"):
            complete(served, "x", **options)
    with pytest.raises(openai.BadRequestError, match="token ids run from 0 to"):
        complete(served, [1, 10**7])
    assert complete(served, "x").choices[0].finish_reason in ("stop", "length")


def test_the_context_limit_is_exact(served: Served) -> None:
    limit = SETTINGS["max_model_len"]
    assert complete(served, [5] * (limit - 1), max_tokens=1).usage.total_tokens == limit
    with pytest.raises(openai.BadRequestError, match=f"holds {limit} tokens: the prompt has {limit} tokens"):
        complete(served, [5] * limit, max_tokens=1)
    with pytest.raises(openai.BadRequestError, match=rf"holds {limit} tokens: {limit - 2} prompt tokens .* at most 2"):
        complete(served, [5] * (limit - 2), max_tokens=3)


def test_end_ids_end_answers_unless_told_otherwise(served: Served) -> None:
    ends = served.server.engine.info.eos_token_ids
    assert ends
    for end in ends:
        forced = {"logit_bias": {str(end): 100}, "max_tokens": 6}
        stopped = complete(served, "x", **forced)
        assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("", "stop")
        assert stopped.usage.completion_tokens == 1
        later = complete(served, "x", **forced, extra_body={"min_tokens": 4})
        assert later.usage.completion_tokens == 5
        assert later.choices[0].finish_reason == "stop"
        ignored = complete(served, "x", **forced, extra_body={"ignore_eos": True})
        assert ignored.choices[0].model_extra["token_ids"] == [end] * 6
        assert ignored.choices[0].finish_reason == "length"


def test_an_end_on_the_last_allowed_token_is_a_stop(served: Served) -> None:
    end = served.server.engine.info.eos_token_ids[0]
    assert complete(served, "x", logit_bias={str(end): 100}, max_tokens=1).choices[0].finish_reason == "stop"


def test_a_cache_salt_keeps_prefixes_apart(served: Served) -> None:
    def cached(salt: str | None) -> int:
        extra = {} if salt is None else {"cache_salt": salt}
        answer = complete(served, [11] * 100, max_tokens=1, extra_body=extra)
        count: int = answer.usage.prompt_tokens_details.cached_tokens
        return count

    assert [cached("a"), cached("b"), cached("a"), cached(None), cached(None)] == [0, 0, 96, 0, 96]


def load(served: Served) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{served.server.url}/load").json()
    return answer


def test_aborted_streams_give_their_blocks_back(served: Served) -> None:
    wait_until(lambda: load(served)["num_running"] == load(served)["num_waiting"] == 0, "nothing runs")
    usable = load(served)["num_free_blocks"]
    for number in range(12):
        stream = complete(served, [7 + number] * 40, max_tokens=600, stream=True, extra_body={"ignore_eos": True})
        if number % 3:
            next(iter(stream))
        stream.close()
    wait_until(lambda: load(served)["num_running"] == load(served)["num_waiting"] == 0, "nothing runs")
    assert load(served)["num_free_blocks"] == usable
    metrics = httpx.get(f"{served.server.url}/metrics").text
    assert "vllm:num_requests_running" in metrics
    assert complete(served, "x").choices[0].text is not None


@pytest.mark.parametrize("n", [1, 3])
def test_a_pool_too_small_preempts_and_changes_nothing(tiny: Served, n: int) -> None:
    jobs = [(PROMPTS[i % len(PROMPTS)], {**sampling(i), "n": n, "max_tokens": 100}) for i in range(8)]

    def answer(served: Served, job: tuple[str, dict[str, Any]]) -> list[Any]:
        given = complete(served, job[0], extra_body={"ignore_eos": True}, **job[1])
        return [(choice.index, choice.text, choice.model_extra["token_ids"]) for choice in given.choices]

    expected = [answer(tiny, job) for job in jobs]
    with serving(tiny.file, num_kv_blocks=24, max_model_len=320, admission_conservativeness=0.0) as server:
        small = Served("small", tiny.file, server)
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda job: answer(small, job), jobs))
        counters = load(small)["counters"]
        small.client.close()
    assert got == expected
    assert counters["preemptions"] >= 1  # how many depends on how close together they arrive
