"""Requests for answers of a given shape: they wait for their grammars, hold nobody up, and keep their places."""

from collections.abc import Sequence
from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.execution.scripted_grammars import GrammarFate
from octavo.kv.manager import KVManager
from octavo.request.outputs import FinishReason
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.scheduling.scheduler import Scheduler
from tests.scheduling.harness import Engine, make_layout, make_request


def shaped(name: str, prompt: int | Sequence[int] = 5, *, shape: str = "3", **more: Any) -> GenerateRequest:
    """`shape`: how many ticks the grammar takes, or what is wrong with it."""
    spec = StructuredSpec(kind=StructuredKind.REGEX, source=shape, field="response_format")
    return make_request(name, prompt, structured_outputs=spec, **more)


def fate(spec: StructuredSpec) -> GrammarFate:
    return GrammarFate(int(spec.source)) if spec.source.isdigit() else GrammarFate(2, f"{spec.source} is not supported")


def engine_of(**settings: Any) -> Engine:
    return Engine(grammars=fate, **settings)


def test_while_one_waits_for_its_grammar_others_run() -> None:
    engine = engine_of()
    engine.add(shaped("a"), make_request("b", 5))
    assert list(engine.step()) == ["b"]
    load = engine.scheduler.load()
    assert (load.num_waiting, load.num_running, load.num_waiting_for_grammar) == (1, 1, 1)
    for _ in range(2):
        assert list(engine.step()) == ["b"]
    assert set(engine.step()) == {"a", "b"}
    assert engine.scheduler.load().num_waiting_for_grammar == 0
    engine.run()
    assert engine.stats("a").waited_for_grammar_s == 3.0
    assert engine.stats("b").waited_for_grammar_s == 0.0


def test_when_all_wait_nothing_is_planned_and_nothing_raises() -> None:
    engine = engine_of()
    engine.add(shaped("a"), shaped("b", shape="5"))
    assert [list(engine.step()) for _ in range(4)] == [[], [], [], ["a"]]
    engine.run()
    assert len(engine.tokens["b"]) == 4


def test_a_grammar_that_is_known_costs_no_step() -> None:
    engine = engine_of()
    engine.add(shaped("a", shape="0"))
    assert list(engine.step()) == ["a"]
    engine.run()
    assert engine.stats("a").waited_for_grammar_s == 0.0


def test_whoever_comes_back_has_its_place_in_the_order_of_arrival() -> None:
    engine = engine_of(max_num_seqs=1)
    engine.add(
        make_request("first", 5, max_tokens=6), shaped("a", shape="2"), make_request("b", 5), make_request("c", 5)
    )
    engine.run()
    starts = {name: engine.stats(name).first_scheduled_s for name in ("first", "a", "b", "c")}
    assert list(starts) == sorted(starts, key=lambda name: starts[name])


def test_it_does_not_count_as_overtaken_while_it_waits() -> None:
    """So none of the others has to stop for it, and none of its own chances is used up."""
    engine = engine_of(max_num_seqs=1, max_bypasses=1)
    engine.add(shaped("a", shape="30"), *(make_request(f"r{i}", 5) for i in range(5)))
    engine.run()
    starts = [engine.stats(f"r{i}").first_scheduled_s for i in range(5)]
    assert max(starts) < engine.stats("a").first_scheduled_s
    assert sorted(starts) == starts


@pytest.mark.parametrize("fair", [False, True])
def test_fair_shares_hold_for_whoever_comes_back(fair: bool) -> None:
    engine = engine_of(max_num_seqs=1, fair_share=fair)
    engine.add(*(make_request(f"b{i}", 5, tenant="b") for i in range(6)), shaped("waits", tenant="a", shape="6"))
    engine.run()
    starts = sorted(("waits", *(f"b{i}" for i in range(6))), key=lambda name: engine.stats(name).first_scheduled_s)
    assert starts.index("waits") == (2 if fair else 6)


def test_a_refused_grammar_ends_its_request_alone() -> None:
    engine = engine_of()
    engine.add(shaped("bad", shape="look-ahead"), shaped("good", shape="2"), make_request("free", 5))
    engine.run()
    (output,) = engine.outputs["bad"]
    assert output.finish_reason is FinishReason.ERROR
    assert (output.error, output.error_status) == ("look-ahead is not supported", 400)
    assert (output.error_field, output.error_value) == ("response_format", "look-ahead")
    assert output.stats is not None
    assert output.stats.waited_for_grammar_s == 2.0
    assert output.stats.num_steps == 0
    assert [len(engine.tokens[name]) for name in ("good", "free")] == [4, 4]
    assert engine.counters["finished_error"] == 1
    assert all("bad" not in plan.finished_request_ids for plan in engine.plans)


@pytest.mark.parametrize("how", ["abort", "end"])
def test_leaving_while_the_grammar_is_compiled(how: str) -> None:
    engine = engine_of()
    engine.add(shaped("a"), make_request("b", 5))
    engine.step()
    assert len(engine.grammars.tickets) == 1
    assert engine.scheduler.abort("a") if how == "abort" else engine.scheduler.end("a", engine.now_s)
    engine.check()
    engine.run()
    assert engine.grammars.tickets == frozenset()
    assert engine.outputs["a"] == []
    assert len(engine.tokens["b"]) == 4


def test_an_id_that_comes_again_while_the_old_grammar_is_on_its_way() -> None:
    engine = engine_of()
    engine.add(shaped("a", shape="2"), make_request("b", 5, max_tokens=12))
    engine.step()
    engine.scheduler.abort("a")
    engine.add(shaped("a", shape="6"))
    for _ in range(6):
        assert list(engine.step()) == ["b"]
    assert set(engine.step()) == {"a", "b"}
    engine.run()
    assert engine.grammars.tickets == frozenset()


def test_whoever_is_preempted_does_not_wait_again() -> None:
    engine = engine_of(num_blocks=8)
    engine.add(shaped("a", 8, max_tokens=20), shaped("b", 8, max_tokens=20, shape="4"))
    engine.run()
    assert engine.counters["preemptions"] > 0
    assert {len(engine.tokens[name]) for name in "ab"} == {20}
    assert engine.stats("b").waited_for_grammar_s == 4.0
    assert engine.grammars.tickets == frozenset()


def test_a_grammar_is_kept_until_the_steps_have_landed_that_may_need_it() -> None:
    """The plan that takes the request in is made, and not run, when the request is aborted: see `has_grammar`."""
    engine = engine_of(async_scheduling=True)
    engine.add(make_request("other", 5, max_tokens=9), shaped("a", shape="0"))
    assert engine.plan_ahead()
    assert "a" in engine.in_flight[-1].request_ids
    engine.scheduler.abort("a")
    assert engine.plan_ahead()
    assert engine.grammars.tickets
    engine.run()
    assert engine.grammars.tickets == frozenset()


def test_waiting_requests_count_against_the_bound_of_the_queue() -> None:
    engine = engine_of(max_num_queued_reqs=2)
    engine.add(shaped("a"), shaped("b"))
    assert engine.scheduler.queue_full
    engine.run()


@pytest.mark.parametrize("policy", ["fcfs", "priority", "prefix"])
def test_every_policy_takes_back_whoever_has_waited(policy: str) -> None:
    engine = engine_of(scheduling_policy=policy, max_num_seqs=2, num_blocks=16)
    requests = [shaped(f"r{i}", range(4 + i), shape=str(i % 4), priority=i % 3) for i in range(9)]
    tokens = engine.generate(*requests)
    assert [len(ids) for ids in tokens] == [4] * 9


def whole_after(count: int) -> Any:
    def completes(token_ids: Sequence[int], num_prompt_tokens: int, params: SamplingParams) -> bool:
        return len(token_ids) - num_prompt_tokens >= count

    return completes


@pytest.mark.parametrize("ahead", [False, True])
def test_the_runner_says_where_an_answer_ends(ahead: bool) -> None:
    engine = Engine(completes=whole_after(3), async_scheduling=ahead)
    engine.add(shaped("a", max_tokens=9), shaped("at its length", max_tokens=3), make_request("free", 5, max_tokens=6))
    engine.run()
    for name in ("a", "at its length"):
        assert len(engine.tokens[name]) == 3
        last = engine.outputs[name][-1]
        assert (last.finish_reason, last.ends_with_text) == (FinishReason.STOP, True)
        assert last.stats is not None
    assert engine.finished["free"] is FinishReason.LENGTH
    assert engine.counters["discarded_tokens"] == (1 if ahead else 0)


def test_an_end_token_is_no_text_even_where_the_answer_is_whole() -> None:
    engine = Engine(completes=whole_after(2), script=lambda known, num_prompt, params: 7)
    engine.add(shaped("a", eos=(7,)))
    engine.run()
    (output,) = engine.outputs["a"]
    assert (output.finish_reason, output.ends_with_text) == (FinishReason.STOP, False)


def test_without_anybody_who_compiles_shapes_are_refused() -> None:
    engine = engine_of()
    scheduler = Scheduler(engine.config, KVManager(make_layout(8)), 64)
    with pytest.raises(InvalidRequestError, match=r"response_format=.*skip_tokenizer_init"):
        scheduler.add(shaped("a"), 0.0)
    assert not scheduler.has_work
