"""POST /v1/completions through the stock client."""

import httpx
import openai
import pytest

from octavo.request.repetition import RepetitionDetection
from tests.server.conftest import FakeServer
from tests.server.fake_engine import BOS, VOCAB, FakeTokenizer

PROMPT = "tell me something"


def test_text(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt=PROMPT, max_tokens=8, temperature=0)
    assert answer.object == "text_completion"
    assert answer.model == "fake"
    assert len(answer.choices) == 1
    choice = answer.choices[0]
    assert choice.finish_reason == "length"
    assert choice.text
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(PROMPT) + 1  # and BOS
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 16


def test_max_tokens_defaults_to_16(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt=PROMPT)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_four_forms_of_prompt_agree(client: openai.OpenAI) -> None:
    ids = FakeTokenizer().encode(PROMPT)
    forms = [PROMPT, [PROMPT], ids, [ids]]
    texts = [
        client.completions.create(model="fake", prompt=form, max_tokens=8, temperature=0).choices[0].text
        for form in forms
    ]
    assert len(set(texts)) == 1


def test_list_of_prompts_times_n(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt=["one", "two", "three"], n=2, max_tokens=6, seed=1)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 36
    assert answer.usage.prompt_tokens == sum(len(text) + 1 for text in ("one", "two", "three"))
    single = client.completions.create(model="fake", prompt="two", n=2, max_tokens=6, seed=1)
    assert [choice.text for choice in single.choices] == [choice.text for choice in answer.choices[2:4]]


@pytest.mark.parametrize(
    "options", [{}, {"n": 3, "seed": 5}, {"logprobs": 2}, {"echo": True, "logprobs": 1}, {"stop": [" "]}]
)
@pytest.mark.parametrize("prompt", [PROMPT, ["one", "two"]])
def test_stream_equals_whole(client: openai.OpenAI, prompt: str | list[str], options: dict[str, object]) -> None:
    call = {"model": "fake", "prompt": prompt, "max_tokens": 24, **options}
    whole = client.completions.create(**call)
    chunks = list(client.completions.create(**call, stream=True, stream_options={"include_usage": True}))
    *parts, last = chunks
    assert last.choices == []
    assert last.usage == whole.usage
    assert all(chunk.usage is None for chunk in parts)
    assert len({chunk.id for chunk in chunks}) == 1
    for choice in whole.choices:
        mine = [chunk.choices[0] for chunk in parts if chunk.choices[0].index == choice.index]
        assert "".join(part.text for part in mine) == choice.text
        assert all(part.text for part in mine[:-1])
        assert [part.finish_reason for part in mine] == [None] * (len(mine) - 1) + [choice.finish_reason]
        if choice.logprobs is not None:
            for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                parts_joined = [item for part in mine for item in getattr(part.logprobs, field)]
                assert parts_joined == getattr(choice.logprobs, field)


def test_continuous_usage_counts_up_and_knows_the_whole_prompt_at_once(client: openai.OpenAI) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(
        client.completions.create(model="fake", prompt=PROMPT, max_tokens=9, stream=True, stream_options=options)
    )
    usages = [chunk.usage for chunk in chunks]
    assert all(usage is not None and usage.prompt_tokens == len(PROMPT) + 1 for usage in usages)
    counts = [usage.completion_tokens for usage in usages if usage is not None]
    assert counts == sorted(counts)
    assert counts[0] >= 1
    assert counts[-1] == 9


def test_echo_gives_prompt_and_answer(client: openai.OpenAI) -> None:
    plain = client.completions.create(model="fake", prompt=PROMPT, max_tokens=5, temperature=0)
    echoed = client.completions.create(model="fake", prompt=PROMPT, max_tokens=5, temperature=0, echo=True)
    assert echoed.choices[0].text == PROMPT + plain.choices[0].text


def test_echo_logprobs_cover_prompt_and_answer(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="fake", prompt="\n1. Carol DEF", max_tokens=5, echo=True, logprobs=1, temperature=0
    )
    logprobs, usage = answer.choices[0].logprobs, answer.usage
    assert logprobs is not None
    assert usage is not None
    assert logprobs.tokens is not None
    count = usage.prompt_tokens + usage.completion_tokens
    assert {len(logprobs.tokens), len(logprobs.token_logprobs or []), len(logprobs.text_offset or [])} == {count}
    assert (logprobs.token_logprobs or [0])[0] is None
    assert (logprobs.top_logprobs or [{}])[0] is None
    assert "".join(logprobs.tokens[1:]) == answer.choices[0].text  # BOS is spelled, but is no text
    for token, offset in list(zip(logprobs.tokens, logprobs.text_offset or [], strict=True))[1:]:
        assert answer.choices[0].text[offset:].startswith(token)


@pytest.mark.parametrize("echo", [True, False])
def test_max_tokens_zero_scores_the_prompt_alone(client: openai.OpenAI, echo: bool) -> None:
    answer = client.completions.create(model="fake", prompt=PROMPT, max_tokens=0, echo=echo, logprobs=1)
    assert answer.choices[0].text == (PROMPT if echo else "")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.tokens or []) == (len(PROMPT) + 1 if echo else 0)


def test_tokens_that_are_no_text_stay_distinct_in_logprobs(server: FakeServer, client: openai.OpenAI) -> None:
    first, second = VOCAB.index(b"\xf0\x9f"), VOCAB.index(b"\x98\x80")
    server.engine.scripts["smile"] = [first, second, ord("!")]
    answer = client.completions.create(model="fake", prompt="smile", logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text == "😀!"
    assert logprobs is not None
    assert (logprobs.tokens or [])[:3] == ["bytes:\\xf0\\x9f", "bytes:\\x98\\x80", "!"]
    assert (logprobs.text_offset or [])[:3] == [0, 0, 1]


def test_stop_string_inside_a_token(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.scripts["alphabet: ABC"] = [VOCAB.index(b"DEF"), *b"GHIJ"]
    answer = client.completions.create(model="fake", prompt="alphabet: ABC", stop=["EF"], logprobs=0)
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == ("D", "stop")
    assert choice.model_extra is not None
    assert choice.model_extra["stop_reason"] == "EF"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["DEF"]  # its first letter is kept


def test_stop_string_as_first_token_with_logprobs(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.scripts["A: "] = [ord("\n"), *b"more"]
    answer = client.completions.create(model="fake", prompt="A: ", stop=["\n"], temperature=0, logprobs=10)
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == ("", "stop")
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == []


def test_a_long_stop_never_leaks_and_its_held_tail_is_flushed(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.scripts["long"] = list(b"ab STOP HER and on")
    stream = client.completions.create(model="fake", prompt="long", stop=["STOP HERE"], max_tokens=12, stream=True)
    parts = [chunk.choices[0].text for chunk in stream]
    assert "".join(parts) == "ab STOP HER "
    assert "" not in parts[:-1]
    stream = client.completions.create(model="fake", prompt="long", stop=["STOP HER"], max_tokens=18, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "ab "


def test_logprobs_of_a_stopped_answer_are_cut_with_the_text(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.scripts["cut"] = list(b"abc ha ha and")
    call = {"model": "fake", "prompt": "cut", "stop": [" ha ha"], "logprobs": 2}
    whole = client.completions.create(**call).choices[0]
    assert whole.text == "abc"
    assert whole.logprobs is not None
    assert whole.logprobs.tokens == ["a", "b", "c"]
    parts = [chunk.choices[0].logprobs for chunk in client.completions.create(**call, stream=True)]
    assert [token for part in parts if part is not None for token in part.tokens or []] == ["a", "b", "c"]


def test_include_stop_str_in_output(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.scripts["incl"] = list(b"one END two")
    answer = client.completions.create(
        model="fake", prompt="incl", stop="END", logprobs=0, extra_body={"include_stop_str_in_output": True}
    )
    assert answer.choices[0].text == "one END"
    assert answer.choices[0].logprobs is not None
    assert "".join(answer.choices[0].logprobs.tokens or []) == "one END"


def test_return_token_ids(http: httpx.Client) -> None:
    body = {"prompt": [BOS, 65, 66], "max_tokens": 4, "return_token_ids": True, "temperature": 0}
    choice = http.post("/v1/completions", json=body).json()["choices"][0]
    assert choice["prompt_token_ids"] == [BOS, 65, 66]
    assert len(choice["token_ids"]) == 4
    streamed = [line for line in http.post("/v1/completions", json=body | {"stream": True}).text.split("\n\n") if line]
    assert streamed[-1] == "data: [DONE]"
    chunks = [httpx.Response(200, content=line.removeprefix("data: ")).json() for line in streamed[:-1]]
    assert [i for chunk in chunks for i in chunk["choices"][0]["token_ids"]] == choice["token_ids"]
    assert chunks[0]["choices"][0]["prompt_token_ids"] == [BOS, 65, 66]
    assert all(chunk["choices"][0]["prompt_token_ids"] is None for chunk in chunks[1:])


def test_prompt_logprobs(http: httpx.Client) -> None:
    body = {"prompt": "ab", "max_tokens": 1, "prompt_logprobs": 2}
    rows = http.post("/v1/completions", json=body).json()["choices"][0]["prompt_logprobs"]
    assert rows[0] is None
    assert rows[1] == {
        "97": {"logprob": -0.5, "rank": 1, "decoded_token": "a"},
        "98": {"logprob": -1.5, "rank": 2, "decoded_token": "b"},
    }


@pytest.mark.parametrize(("keep", "left"), [(3, list(b"ong")), (-1, list(b"x" * 507))])
def test_truncation_keeps_the_end(server: FakeServer, http: httpx.Client, keep: int, left: list[int]) -> None:
    prompt = "long" if keep > 0 else "x" * 1000
    body = {"prompt": prompt, "max_tokens": 5, "truncate_prompt_tokens": keep}
    assert http.post("/v1/completions", json=body).status_code == 200
    assert list(server.engine.seen[-1][0]) == left


@pytest.mark.parametrize(("side", "left"), [("left", b"ong"), ("right", b"lo"), (None, b"ong")])
def test_truncation_takes_the_side_that_is_named(
    server: FakeServer, http: httpx.Client, side: str | None, left: bytes
) -> None:
    body = {"prompt": "long", "max_tokens": 5, "truncate_prompt_tokens": 3, "truncation_side": side}
    assert http.post("/v1/completions", json=body).status_code == 200
    begin = [BOS] if side == "right" else []
    assert list(server.engine.seen[-1][0]) == begin + list(left)


def test_an_alias_answers_and_an_unknown_model_is_404(client: openai.OpenAI) -> None:
    assert client.completions.create(model="fake-alias", prompt="x", max_tokens=1).model == "fake-alias"
    with pytest.raises(openai.NotFoundError, match="'gpt-9' is not served here; served: fake, fake-alias") as caught:
        client.completions.create(model="gpt-9", prompt="x")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_model_defaults_hold_where_the_request_is_silent(server: FakeServer, client: openai.OpenAI) -> None:
    client.completions.create(model="fake", prompt="x", max_tokens=1)
    assert server.engine.seen[-1][1].temperature == 0.5
    client.completions.create(model="fake", prompt="x", max_tokens=1, temperature=0.25)
    assert server.engine.seen[-1][1].temperature == 0.25


def test_every_sampling_field_reaches_the_engine(server: FakeServer, http: httpx.Client) -> None:
    fields = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "seed": 2**63 - 1,
        "min_tokens": 2,
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
    }
    lists = {"stop": ["###"], "stop_token_ids": [7], "bad_words": ["no"], "allowed_token_ids": [1, 2]}
    body = {"prompt": "x", "max_tokens": 3, "logit_bias": {"5": -100}, **fields, **lists}
    assert http.post("/v1/completions", json=body).status_code == 200
    params = server.engine.seen[-1][1]
    assert {name: getattr(params, name) for name in fields} == fields
    assert {name: list(getattr(params, name)) for name in lists} == lists
    assert params.logit_bias == {5: -100.0}


def test_repetition_detection_reaches_the_engine(server: FakeServer, http: httpx.Client) -> None:
    wanted = {"max_pattern_size": 5, "min_pattern_size": 2, "min_count": 3}
    body = {"prompt": "x", "max_tokens": 3, "repetition_detection": wanted}
    assert http.post("/v1/completions", json=body).status_code == 200
    assert server.engine.seen[-1][1].repetition_detection == RepetitionDetection(**wanted)


def test_null_means_absent(http: httpx.Client) -> None:
    names = [
        "n",
        "max_tokens",
        "temperature",
        "stop",
        "logit_bias",
        "seed",
        "suffix",
        "best_of",
        "top_k",
        "user",
        "logprobs",
    ]
    plain = http.post("/v1/completions", json={"prompt": "x", "seed": 3}).json()
    body = {"prompt": "x", **dict.fromkeys(names), "seed": 3}
    assert http.post("/v1/completions", json=body).json()["choices"] == plain["choices"]


@pytest.mark.parametrize(
    "body",
    [
        '{"max_tokens": 8, "seed": 4, "prompt": "same"}',
        ' {\n\t"prompt" : "\\u0073ame" , "seed":4,"max_tokens":8 } ',
        '{"prompt": "other", "seed": 4, "max_tokens": 8, "prompt": "same"}',
    ],
)
def test_the_spelling_of_json_changes_nothing(http: httpx.Client, body: str) -> None:
    plain = http.post("/v1/completions", json={"prompt": "same", "seed": 4, "max_tokens": 8}).json()
    assert http.post("/v1/completions", content=body).json()["choices"] == plain["choices"]
