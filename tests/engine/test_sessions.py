"""Sessions in both Python APIs: what a conversation keeps, warming up, leases, refusals across the process border."""

import asyncio
from collections.abc import Iterator

import pytest

from octavo import SamplingParams
from octavo.engine.async_llm import AsyncLLM
from octavo.engine.llm import LLM
from octavo.errors import InvalidRequestError, PinBudgetError, SessionNotFoundError
from octavo.request.pin import PinRequest
from tests.engine.scripted import says, scripted_llm

GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.fixture(params=[False, True], ids=["in turn", "a step ahead"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with scripted_llm(says("one two three"), max_model_len=96, async_scheduling=request.param) as made:
        yield made


def crowd(llm: LLM) -> None:
    """Others' requests, enough to fill the pool several times."""
    llm.generate([f"{number} other things, and many of them" for number in range(12)], GREEDY)


def cached(llm: LLM, prompt: str, session: str | None = None) -> int:
    return llm.generate(prompt, GREEDY, session=session)[0].num_cached_tokens


def test_a_session_keeps_what_others_would_push_out(llm: LLM) -> None:
    first = "A question of a certain length."
    assert cached(llm, first, "mine") == cached(llm, "Something quite different.", None) == 0
    crowd(llm)
    # 31 tokens and 12 of the answer, of which 11 are computed: 10 full blocks of 4
    assert llm.session("mine").num_pinned_tokens == 40
    assert cached(llm, first + "one two thre, and so on") == 40
    assert cached(llm, "Something quite different.one two thre") == 0


def test_a_prompt_can_be_pinned_ahead(llm: LLM) -> None:
    state = llm.pin("The system prompt, in so many words.", PinRequest(session_id="system", lease_s=5000))
    assert (state.num_pinned_tokens, state.num_pinned_blocks, state.lease_s) == (36, 9, 5000)
    crowd(llm)
    assert cached(llm, "The system prompt, in so many words. And a question.") == 36


def test_an_end_at_a_stop_string_counts_as_an_end(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=30, stop=(" three",))
    (output,) = llm.generate("A question.", params, session="s")
    assert output.outputs[0].finish_reason == "stop" and output.outputs[0].text == "one two"
    assert llm.session("s").num_pinned_tokens == 20  # of 11 + 13 tokens, the last one not computed
    assert llm.load().num_running == 0


def test_a_stream_that_is_left_early_pins_nothing(llm: LLM) -> None:
    stream = llm.stream("A question.", GREEDY, session="s")
    next(iter(stream))
    stream.close()  # type: ignore[attr-defined]
    assert llm.session("s").num_pinned_tokens == 0


def test_of_several_choices_the_first_is_kept(llm: LLM) -> None:
    llm.generate("A question.", GREEDY.replace(n=3), session="s")
    assert llm.session("s").num_pinned_tokens == 20 and llm.session("s").num_live_requests == 0


def test_sessions_are_listed_extended_and_ended(llm: LLM) -> None:
    llm.pin("Some words.", "a")
    llm.pin("Other words, some more.", PinRequest(session_id="b", lease_s=10))
    assert [one.session_id for one in llm.sessions()] == ["a", "b"]
    assert llm.extend_session(PinRequest(session_id="b", lease_s=99)).lease_s == 99
    assert llm.extend_session("b").lease_s == 99
    assert llm.load().num_sessions == 2 and llm.load().num_pinned_blocks == 2 + 5
    assert llm.end_session("b") and not llm.end_session("b")
    assert llm.load().num_pinned_blocks == 2
    for use in (llm.session, llm.extend_session):
        with pytest.raises(SessionNotFoundError, match="no session 'b'"):
            use("b")


def test_a_session_goes_with_one_prompt(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="one prompt, not with 2"):
        llm.generate(["a", "b"], GREEDY, session="s")
    with pytest.raises(InvalidRequestError, match="session_id"):
        llm.generate("a", GREEDY, session="not a name")
    assert llm.sessions() == []


def test_what_cannot_be_held_is_refused_with_numbers(llm: LLM) -> None:
    for number in range(2):
        llm.pin(f"{number} words, of which there are enough for a dozen blocks", f"s{number}")
    with pytest.raises(PinBudgetError, match=r"takes 13 KV blocks .* 5 are free of 31 blocks"):
        llm.pin("3 words, of which there are enough for a dozen blocks", "s3")
    (output,) = llm.generate("3 words, of which there are enough for a dozen blocks", GREEDY, session="s4")
    assert output.outputs[0].finish_reason == "length"
    stats = output.outputs[0].stats
    assert stats is not None and "are free of 31 blocks" in stats.pin_problem and stats.num_pinned_tokens == 0


def test_a_prompt_that_can_never_run_opens_no_session(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="context"):
        llm.pin("x" * 96, "s")
    assert llm.sessions() == []


# ---- over the process border


def test_the_asynchronous_api_does_the_same(tiny_model: str) -> None:
    asyncio.run(_converse(tiny_model))


async def _converse(model: str) -> None:
    llm = await AsyncLLM.start(
        model, max_model_len=64, num_kv_blocks=41, block_size=4, max_pinned_tokens_per_key=40, threads=1
    )
    try:
        prompt = list(range(3, 20))
        state = await llm.pin(prompt, PinRequest(session_id="s", lease_s=77), tenant="a")
        assert (state.num_pinned_tokens, state.lease_s) == (16, 77)
        await _cached(llm, range(100, 160), "other", None)  # fills the pool, once
        await _cached(llm, range(30, 90), "other", None)
        assert await _cached(llm, [*prompt, 7], "a", "s") == 16
        assert await llm.sessions(tenant="b") == []
        assert (await llm.session("s", tenant="a")).num_pinned_tokens == 20
        with pytest.raises(SessionNotFoundError):
            await llm.session("s", tenant="b")
        with pytest.raises(InvalidRequestError, match="more than the 40 that one key may hold") as refusal:
            await llm.pin(range(3, 60), "t", tenant="a")
        assert refusal.value.field == "session_id"
        with pytest.raises(PinBudgetError, match="more than the 20 that are free") as shortage:
            await llm.pin(range(100, 125), "t", tenant="a")
        assert shortage.value.retry_after_s > 60
        assert (await llm.open_session("empty", tenant="b")).num_pinned_tokens == 0
        assert (await llm.extend_session(PinRequest(session_id="empty", lease_s=5), tenant="b")).lease_s == 5
        assert await llm.end_session("s", tenant="a") and not await llm.end_session("s", tenant="a")
        assert (await llm.load()).num_pinned_blocks == 0
    finally:
        await llm.shutdown()


async def _cached(llm: AsyncLLM, prompt: range | list[int], tenant: str, session: str | None) -> int:
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    count = 0
    async for delta in llm.generate(prompt, params, tenant=tenant, session=session):
        count = delta.num_cached_tokens
    return count
