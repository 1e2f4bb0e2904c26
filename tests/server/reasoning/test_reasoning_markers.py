"""Markers of reasoning as token ids, and what cannot be told by them."""

import httpx
import pytest

from octavo.errors import InvalidRequestError
from octavo.server.conversation.reasoning_markers import reasoning_spec
from octavo.server.reasoning.registry import reasoning_family
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.running import running_server


async def thinker() -> FakeEngine:
    """Its template marks reasoning by tags."""
    return FakeEngine(template="{{ '<think>' }}")


class Melting(FakeTokenizer):
    """Has a token for `>` with the line break behind it."""

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        ids = super().encode(text.replace(">\n", "\x00"), add_special=add_special, parse_special=parse_special)
        return [261 if i == 0 else i for i in ids]


def refusal(family: str, tokenizer: FakeTokenizer) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        reasoning_spec(tokenizer, reasoning_family(family), is_open=False, shape=None, budget=3)
    assert caught.value.field == "thinking_token_budget"
    return caught.value.problem


def test_ids_of_the_markers() -> None:
    spec = reasoning_spec(FakeTokenizer(), reasoning_family("deepseek_r1"), is_open=True, shape=None, budget=3)
    assert spec is not None
    assert (spec.begins, spec.ends) == ((tuple(b"<think>"),), (tuple(b"</think>"),))
    assert (spec.budget, spec.is_open, spec.reopens) == (3, True, False)
    assert spec.forced_end == tuple(FakeTokenizer().encode("\n</think>\n\n", add_special=False))


@pytest.mark.parametrize("budget", [None, -1])
def test_without_a_budget_and_a_shape_the_engine_need_not_know(budget: int | None) -> None:
    family = reasoning_family("deepseek_r1")
    assert reasoning_spec(FakeTokenizer(), family, is_open=True, shape=None, budget=budget) is None


def test_a_marker_that_melts_into_what_follows_is_refused() -> None:
    assert "no token of its own for '<think>'" in refusal("deepseek_r1", Melting())


def test_families_that_mark_reasoning_in_two_ways_are_refused() -> None:
    assert "more than one way" in refusal("granite", FakeTokenizer())


def test_models_without_reasoning_are_refused() -> None:
    assert "--reasoning-parser" in refusal("none", FakeTokenizer())


@pytest.mark.parametrize("family", ["harmony", "gemma4", "mistral", "deepseek_r1"])
def test_all_other_families_can_be_told(family: str) -> None:
    spec = reasoning_spec(FakeTokenizer(), reasoning_family(family), is_open=False, shape=None, budget=0)
    assert spec is not None and spec.begins and spec.forced_end


def test_both_endpoints_send_the_engine_the_budget() -> None:
    with running_server(thinker) as server, httpx.Client(base_url=server.url) as http:
        wanted = {"max_tokens": 2, "thinking_token_budget": 9}
        chat = {"messages": [{"role": "user", "content": "hi <think>"}], "add_generation_prompt": False}
        for path, prompt, is_open in (
            ("/v1/completions", {"prompt": "well <think>"}, True),
            ("/v1/completions", {"prompt": ["well", "hm"]}, False),
            ("/v1/chat/completions", chat, False),
        ):
            assert http.post(path, json=prompt | wanted).status_code == 200
            spec = server.engine.seen[-1][1].reasoning
            assert spec is not None and (spec.budget, spec.is_open) == (9, is_open)
        assert http.post("/v1/completions", json={"prompt": "a <think>", "max_tokens": 1}).status_code == 200
        assert server.engine.seen[-1][1].reasoning is None
