"""One step: who runs, in which order, with how many tokens."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.scheduling.plan import StepResult
from tests.scheduling.harness import Engine, alone, make_request


def test_a_6000_token_prompt_beside_100_decodes_runs_3996_then_2004_then_decodes():
    engine = Engine(num_blocks=1000, block_size=16, max_num_batched_tokens=4096, max_num_seqs=128, max_model_len=8192)
    engine.add(*[make_request(f"short-{i}", 1, max_tokens=20) for i in range(100)])
    engine.step()
    engine.add(make_request("long", 6000, max_tokens=20))
    for expected in (3996, 2004, 1, 1):
        step = engine.step()
        assert step.pop("long") == expected
        assert len(step) == 100 and set(step.values()) == {1}


def test_2050_tokens_with_a_threshold_of_512_run_in_five_chunks_beside_another_request():
    options = {"block_size": 16, "num_blocks": 300, "max_num_batched_tokens": 4096, "max_model_len": 4096}
    engine = Engine(long_prefill_token_threshold=512, **options)
    engine.add(make_request("other", 1, max_tokens=50), make_request("long", 2050, max_tokens=2))
    assert [engine.step()["long"] for _ in range(6)] == [512, 512, 512, 512, 2, 1]
    lone = Engine(long_prefill_token_threshold=512, **options)
    lone.add(make_request("long", 2050, max_tokens=2))
    assert [lone.step()["long"] for _ in range(2)] == [2050, 1]


def test_the_threshold_counts_waiting_requests_as_present():
    engine = Engine(long_prefill_token_threshold=8, max_num_seqs=1)
    engine.add(make_request("a", 20), make_request("b", 20))
    assert engine.step() == {"a": 8}


def test_the_threshold_caps_admissions_but_not_the_number_of_them():
    engine = Engine(long_prefill_token_threshold=8)
    engine.add(*[make_request(name, 20) for name in "abcde"])
    assert engine.step() == {"a": 8, "b": 8, "c": 8, "d": 8}  # the budget is 32


def test_running_requests_go_first_in_the_order_of_admission():
    engine = Engine(max_num_batched_tokens=10)
    engine.add(make_request("a", 4, max_tokens=9), make_request("b", 4, max_tokens=9))
    engine.step()
    engine.add(make_request("c", 20), make_request("d", 4))
    assert list(engine.step().items()) == [("a", 1), ("b", 1), ("c", 8)]
    assert list(engine.step().items()) == [("a", 1), ("b", 1), ("c", 8)]
    assert list(engine.step().items()) == [("a", 1), ("b", 1), ("c", 4), ("d", 4)]


def test_the_budget_bounds_the_sum_and_those_behind_it_stay_running():
    engine = Engine(max_num_batched_tokens=4)
    engine.add(*[make_request(name, 1, max_tokens=9) for name in "abcd"])
    engine.step()
    engine.add(make_request("e", 9, max_tokens=2))
    assert engine.step() == dict.fromkeys("abcd", 1)
    assert (engine.num_running, engine.num_waiting) == (4, 1)


def test_no_more_than_max_num_seqs_run():
    engine = Engine(max_num_seqs=3)
    engine.add(*[make_request(f"r{i}", 2, max_tokens=3 + i) for i in range(6)])
    engine.step()
    assert (engine.num_running, engine.num_waiting) == (3, 3)
    engine.run()
    assert len(engine.finished) == 6


def test_waiting_requests_are_admitted_in_the_order_of_arrival():
    engine = Engine(max_num_seqs=2)
    names = [f"r{i}" for i in (3, 1, 4, 1.5, 9, 2.6)]
    engine.add(*[make_request(name, 3, max_tokens=2) for name in names])
    engine.run()
    admitted = [data.request_id for plan in engine.plans for data in plan.new_requests]
    assert admitted == names


def test_a_finish_does_not_disturb_the_order_of_the_rest():
    engine = Engine()
    engine.add(*[make_request(name, 2, max_tokens=2 if name == "b" else 5) for name in "abcd"])
    engine.step()
    engine.step()
    assert list(engine.step()) == ["a", "c", "d"]


def test_a_prompt_and_its_m_tokens_take_m_steps_beyond_all_but_the_last_chunk():
    engine = Engine(max_num_batched_tokens=8)
    engine.add(make_request("a", 20, max_tokens=5))
    engine.run()
    assert [plan.num_scheduled_tokens for plan in engine.plans] == [(8,), (8,), (4,), (1,), (1,), (1,), (1,)]
    assert [plan.num_computed_tokens for plan in engine.plans] == [(0,), (8,), (16,), (20,), (21,), (22,), (23,)]
    assert [len(output.new_token_ids) for output in engine.outputs["a"]] == [1] * 5


@settings(max_examples=30)
@given(st.integers(1, 100), st.integers(1, 40), st.integers(0, 100))
def test_the_first_token_of_a_lone_request_comes_in_step_ceil_of_uncached_over_budget(length, budget, cached):
    engine = Engine(max_num_batched_tokens=budget)
    if 0 < cached < length:
        engine.generate(make_request("warm", range(cached), max_tokens=1))
    hit = min(cached, length - 1) // 4 * 4 if 0 < cached < length else 0
    before = len(engine.plans)
    engine.add(make_request("a", range(length), max_tokens=1))
    engine.run()
    assert len(engine.plans) - before == math.ceil((length - hit) / budget)


def test_a_short_request_behind_a_long_prompt_starts_once_the_prompt_is_through():
    engine = Engine(max_num_batched_tokens=16, max_model_len=256, num_blocks=128)
    engine.add(make_request("long", 200, max_tokens=1), make_request("short", 3, max_tokens=1))
    first = next(i for i in range(100) if "short" in engine.step())
    assert first + 1 <= math.ceil(200 / 16) + 1


def test_tokens_count_as_computed_from_the_moment_they_are_scheduled():
    engine = Engine(max_num_batched_tokens=8)
    engine.add(make_request("a", 12))
    plan = engine.plan()
    request = engine.scheduler._requests["a"]
    assert (plan.num_computed_tokens, request.num_computed) == ((0,), 8)
    engine.finish(plan)
    assert request.num_computed == 8


def test_schedule_gives_a_plan_if_and_only_if_there_is_work():
    engine = Engine()
    assert not engine.scheduler.has_work and engine.scheduler.schedule(0.0) is None
    engine.add(make_request("a", 3, max_tokens=2))
    while engine.scheduler.has_work:
        engine.step()
    assert engine.scheduler.schedule(9.0) is None
    assert len(engine.plans) == 2


def test_steps_are_numbered_from_0_without_gaps():
    engine = Engine()
    engine.generate(make_request("a", 3, max_tokens=3))
    engine.scheduler.schedule(0.0)
    engine.generate(make_request("b", 3, max_tokens=3))
    assert [plan.step for plan in engine.plans] == list(range(6))


def test_finished_ids_are_reported_once_with_the_next_plan():
    engine = Engine()
    engine.add(make_request("a", 2, max_tokens=1), make_request("b", 2, max_tokens=3))
    engine.run()
    assert [plan.finished_request_ids for plan in engine.plans] == [(), ("a",), ()]
    engine.generate(make_request("c", 2, max_tokens=2))
    assert [plan.finished_request_ids for plan in engine.plans[3:]] == [("b",), ()]
    assert engine.executor.held_request_ids == {"c"}


def test_an_id_can_be_used_again_once_its_request_has_ended():
    engine = Engine()
    first = engine.generate(make_request("a", 2, max_tokens=2))[0][:]
    engine.tokens.clear()
    engine.finished.clear()
    assert engine.generate(make_request("a", 2, max_tokens=2))[0] == first
    assert engine.plans[2].finished_request_ids == ("a",) and engine.plans[2].new_requests[0].request_id == "a"


def test_schedule_and_update_alternate():
    engine = Engine()
    engine.add(make_request("a", 2))
    plan = engine.plan()
    with pytest.raises(RuntimeError, match="before update"):
        engine.scheduler.schedule(0.0)
    engine.finish(plan)
    with pytest.raises(RuntimeError, match="no step is in flight"):
        engine.scheduler.update(plan, StepResult(step=0, token_ids=((1,),)), 0.0)


def test_a_result_of_another_step_is_refused():
    engine = Engine()
    engine.add(make_request("a", 2))
    plan = engine.plan()
    with pytest.raises(RuntimeError, match="plan 0 and result 1; step 0 is in flight"):
        engine.scheduler.update(plan, StepResult(step=1, token_ids=((1,),)), 0.0)


def test_a_result_with_missing_rows_is_refused():
    engine = Engine()
    engine.add(make_request("a", 2), make_request("b", 2))
    plan = engine.plan()
    with pytest.raises(ValueError, match="shorter"):
        engine.scheduler.update(plan, StepResult(step=0, token_ids=((1,),)), 0.0)


def test_a_token_for_an_unfinished_prompt_is_refused():
    engine = Engine(max_num_batched_tokens=4)
    engine.add(make_request("a", 6))
    plan = engine.plan()
    with pytest.raises(RuntimeError, match="whose prompt is unfinished"):
        engine.scheduler.update(plan, StepResult(step=0, token_ids=((1,),)), 0.0)


def test_a_request_that_gets_neither_token_nor_error_ends_instead_of_hanging():
    engine = Engine()
    engine.add(make_request("a", 6))
    plan = engine.plan()
    (output,) = engine.scheduler.update(plan, StepResult(step=0, token_ids=((),)), 0.0)
    assert (output.finish_reason, output.error) == ("error", "the executor returned neither a token nor an error")
    assert not engine.scheduler.has_work


def test_the_plan_introduces_a_request_with_all_its_blocks_and_later_names_only_new_ones():
    engine = Engine(block_size=4)
    engine.add(make_request("a", 7, max_tokens=6))
    first = engine.plan()
    assert first.new_block_ids == (((),),)
    assert len(first.new_requests[0].block_ids[0]) == 2
    assert first.new_requests[0].num_prompt_tokens == 7
    engine.finish(first)
    engine.step()
    engine.step()
    counts = [len(plan.new_block_ids[0][0]) for plan in engine.plans[1:]]
    assert counts == [0, 1]
    assert not any(plan.new_requests for plan in engine.plans[1:])


@settings(max_examples=25)
@given(st.data())
def test_tokens_do_not_depend_on_the_budget(data):
    requests = [
        make_request(f"r{i}", data.draw(st.integers(1, 40)), max_tokens=data.draw(st.integers(1, 12)))
        for i in range(data.draw(st.integers(1, 6)))
    ]
    engine = Engine(max_num_batched_tokens=data.draw(st.integers(1, 64)), max_num_seqs=data.draw(st.integers(1, 6)))
    assert engine.generate(*requests) == [alone(request) for request in requests]
