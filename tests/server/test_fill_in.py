"""Filling in the middle: prompts of models that know how, and refusals of those that do not."""

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import openai
import pytest

from octavo.server.fill_in import SPELLINGS, FillInSpelling, fill_in_prompt, fill_in_tokens
from tests.server.conftest import FakeServer
from tests.server.fake_engine import BOS, VOCAB, FakeEngine, FakeTokenizer
from tests.server.running import running_server

FIRST = 1000
"""Ids of the tokens that a family adds."""


class KnowingTokenizer(FakeTokenizer):
    """One that has the tokens of a family besides."""

    def __init__(self, spelling: FillInSpelling) -> None:
        texts = [spelling.prefix, spelling.suffix, spelling.middle, *spelling.ends[:1]]
        self.added = {text: FIRST + at for at, text in enumerate(texts) if text}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        if parse_special and text in self.added:
            return [self.added[text]]
        return super().encode(text, add_special=add_special, parse_special=parse_special)

    def token_bytes(self, token_id: int) -> bytes:
        names = {token_id: text for text, token_id in self.added.items()}
        return names[token_id].encode() if token_id in names else super().token_bytes(token_id)


async def prompt(spelling: FillInSpelling) -> list[int]:
    tokenizer = KnowingTokenizer(spelling)
    tokens = fill_in_tokens(tokenizer)
    assert tokens is not None
    assert set(tokens.end_ids) == set(tokenizer.added.values())
    return await fill_in_prompt(tokenizer, tokens, "ab", "cd", FIRST)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.prefix)
def test_both_parts_stand_between_the_tokens_of_the_family(spelling: FillInSpelling) -> None:
    import asyncio

    a, c = [ord("a"), ord("b")], [ord("c"), ord("d")]
    middle = [FIRST + 2] if spelling.middle else []
    parts: Sequence[int] = [FIRST + 1, *c, FIRST, *a] if spelling.suffix_first else [FIRST, *a, FIRST + 1, *c]
    assert asyncio.run(prompt(spelling)) == [BOS, *parts, *middle]


def test_a_vocabulary_without_such_tokens_knows_nothing() -> None:
    assert fill_in_tokens(FakeTokenizer()) is None


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose tokenizer has markers, in place of a word."""

    async def start() -> FakeEngine:
        engine = FakeEngine()
        tokenizer = KnowingTokenizer(SPELLINGS[0])
        tokenizer.added = {text: len(VOCAB) - 1 - at for at, text in enumerate(tokenizer.added)}
        engine.tokenizer = tokenizer
        return engine

    with running_server(start) as running:
        yield running


def test_suffix(server: FakeServer, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt="ab", suffix="cd", max_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    prefix, suffix, middle = (len(VOCAB) - 1 - at for at in range(3))
    assert server.engine.seen[-1][0] == (BOS, prefix, *b"ab", suffix, *b"cd", middle)
    assert {prefix, suffix, middle} <= set(server.engine.seen[-1][1].stop_token_ids)


def test_no_suffix_is_a_plain_completion(server: FakeServer, client: openai.OpenAI) -> None:
    for nothing in ("", None):
        client.completions.create(model="fake", prompt="ab", suffix=nothing, max_tokens=2)
        assert server.engine.seen[-1][0] == (BOS, *b"ab")
        assert server.engine.seen[-1][1].stop_token_ids == ()


@pytest.mark.parametrize("options", [{"echo": True}, {"truncate_prompt_tokens": 2}])
def test_what_does_not_go_with_a_suffix(http: httpx.Client, options: dict[str, Any]) -> None:
    answer = http.post("/v1/completions", json={"prompt": "ab", "suffix": "cd"} | options)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "suffix")


def test_a_model_that_cannot_fill_in_says_so() -> None:
    async def start() -> FakeEngine:
        return FakeEngine()

    with running_server(start) as running:
        answer = httpx.post(f"{running.url}/v1/completions", json={"prompt": "ab", "suffix": "cd"})
        assert answer.status_code == 400
        assert "not trained to fill in the middle" in answer.json()["error"]["message"]
