"""Reasoning over HTTP: apart from the content, counted, left out, limited, and in front of answers of a given shape."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo.request.reasoning import ReasoningSpec
from tests.server.conftest import FakeServer
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.running import running_server

HELLO: Any = [{"role": "user", "content": "hello"}]
THOUGHT = "<think>\nHm, 🤔 hm.\n</think>\n\nYes."
NUM_THOUGHT_TOKENS = len(FakeTokenizer().encode("<think>\nHm, 🤔 hm.\n</think>", add_special=False))
OPEN = {"chat_template_kwargs": {"thinks": True}}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose model thinks in tags and calls as Hermes does."""

    async def start() -> FakeEngine:
        return FakeEngine(max_model_len=4096, template="{{ tools }} <tool_call> <think></think> {{ enable_thinking }}")

    with running_server(start) as running:
        yield running


def ask(http: httpx.Client, **options: Any) -> Any:
    answer = http.post("/v1/chat/completions", json={"messages": HELLO} | options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def reasoning_tokens(answer: Any) -> int:
    count: int = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    return count


def test_reasoning_stands_apart(server: FakeServer, http: httpx.Client) -> None:
    server.engine.answer_with(THOUGHT)
    answer = ask(http)
    message = answer["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("Hm, 🤔 hm.", "Yes.")
    assert reasoning_tokens(answer) == NUM_THOUGHT_TOKENS


def test_an_answer_that_begins_inside_reasoning(server: FakeServer, http: httpx.Client) -> None:
    server.engine.answer_with("Hm.\n</think>Yes.")
    message = ask(http, **OPEN)["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("Hm.", "Yes.")


@pytest.mark.parametrize("cuts", [(1,), (2, 5), (1000,)])
def test_a_stream_says_the_same(server: FakeServer, client: openai.OpenAI, cuts: tuple[int, ...]) -> None:
    server.engine.answer_with(THOUGHT, cuts)
    chunks = list(
        client.chat.completions.create(
            model="fake", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [chunk.choices[0].delta.model_dump() for chunk in chunks[:-1]]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "Hm, 🤔 hm."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Yes."
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == NUM_THOUGHT_TOKENS


def test_reasoning_can_be_left_out_and_still_counts(server: FakeServer, http: httpx.Client) -> None:
    server.engine.answer_with(THOUGHT)
    answer = ask(http, include_reasoning=False, return_token_ids=True)
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Yes.", "refusal": None}
    assert reasoning_tokens(answer) == NUM_THOUGHT_TOKENS
    assert len(choice["token_ids"]) == answer["usage"]["completion_tokens"]


def test_an_answer_cut_off_while_it_thinks_has_no_content(server: FakeServer, http: httpx.Client) -> None:
    server.engine.answer_with(THOUGHT)
    answer = ask(http, max_tokens=12)
    message = answer["choices"][0]["message"]
    assert message["content"] is None
    assert answer["choices"][0]["finish_reason"] == "length"
    assert reasoning_tokens(answer) == 12
    again = [*HELLO, message, *HELLO]
    assert ask(http, messages=again)["choices"][0]["message"]["content"] == "Yes."


def test_no_reasoning_is_none(server: FakeServer, http: httpx.Client) -> None:
    server.engine.answer_with("Yes <think>.")
    answer = ask(http)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Yes <think>.", "refusal": None}
    assert reasoning_tokens(answer) == 0


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_of_the_history_reaches_the_template(server: FakeServer, http: httpx.Client, name: str) -> None:
    seen = []
    original = server.engine.render_chat

    def spy(messages: Any, **options: Any) -> list[int]:
        seen.append(messages)
        return original(messages, **options)

    server.engine.render_chat = spy  # type: ignore[method-assign]
    try:
        ask(http, messages=[*HELLO, {"role": "assistant", "content": "Yes.", name: "Hm."}, *HELLO], max_tokens=1)
    finally:
        del server.engine.render_chat
    assert (seen[0][1]["reasoning"], seen[0][1]["reasoning_content"]) == ("Hm.", "Hm.")


def test_effort_turns_the_switch_that_the_template_has(server: FakeServer, http: httpx.Client) -> None:
    for effort, value in (("none", False), ("high", True)):
        ask(http, reasoning_effort=effort, max_tokens=1)
        assert f"enable_thinking={value}" in FakeTokenizer().decode(server.engine.seen[-1][0])


def encoded(text: str) -> tuple[int, ...]:
    return tuple(FakeTokenizer().encode(text, add_special=False))


def test_a_shape_begins_behind_the_reasoning(server: FakeServer, http: httpx.Client) -> None:
    shape = {"response_format": {"type": "json_object"}}
    for options, is_open in ((shape, False), (shape | OPEN, True)):
        ask(http, max_tokens=1, **options)
        params = server.engine.seen[-1][1]
        assert params.structured_outputs is not None
        assert params.reasoning == ReasoningSpec(
            begins=(encoded("<think>"),),
            ends=(encoded("</think>"),),
            is_open=is_open,
            forced_end=encoded("\n</think>\n\n"),
        )


def test_without_shape_or_budget_the_engine_need_not_follow(server: FakeServer, http: httpx.Client) -> None:
    ask(http, max_tokens=1)
    assert server.engine.seen[-1][1].reasoning is None


def test_flags_choose_the_format() -> None:
    from octavo.config import ServerConfig

    async def start() -> FakeEngine:
        return FakeEngine(max_model_len=4096, template="<think></think>")

    for flag, reasoning in (("none", None), ("mistral", None), ("deepseek_r1", "Hm, 🤔 hm.")):
        with running_server(start, ServerConfig(port=0, reasoning_parser=flag)) as running:
            running.engine.answer_with(THOUGHT)
            answer = httpx.post(f"{running.url}/v1/chat/completions", json={"messages": HELLO}).json()
            message = answer["choices"][0]["message"]
            assert message.get("reasoning") == reasoning
            assert message["content"] == (THOUGHT if reasoning is None else "Yes.")
