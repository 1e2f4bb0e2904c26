"""Async scheduling: step t + 1 is planned from counts while step t runs.

`plan_ahead` and `land` of the harness are the two sides of the overlap: what is planned between a plan and its landing
is planned while it runs.
"""

import pytest

from octavo.request.repetition import RepetitionDetection
from octavo.scheduling.plan import StepResult
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request
from tests.scheduling.test_faults import failing

TWICE = RepetitionDetection(min_pattern_size=2, max_pattern_size=2, min_count=2)


def ahead(**options):
    return Engine(async_scheduling=True, **options)


def says(*token_ids):
    """A script: these tokens, then the last one for ever."""
    return lambda known, num_prompt, params: token_ids[min(len(known) - num_prompt, len(token_ids) - 1)]


def shares(plan):
    rows = zip(plan.request_ids, plan.num_computed_tokens, plan.num_scheduled_tokens, strict=True)
    return {request_id: (computed, count) for request_id, computed, count in rows}


def all_free(engine):
    return engine.manager.num_free_blocks == engine.manager.num_blocks


# ---- planning from counts


def test_the_next_step_is_planned_before_the_token_is_known():
    engine = ahead()
    engine.add(make_request("a", 6, max_tokens=4))
    assert engine.plan_ahead() and engine.plan_ahead()
    assert [shares(plan) for plan in engine.in_flight] == [{"a": (0, 6)}, {"a": (6, 1)}]
    engine.run()
    assert engine.tokens["a"] == alone(make_request("a", 6, max_tokens=4))


def test_no_more_than_two_steps_are_in_flight_and_they_land_in_order():
    engine = ahead()
    engine.add(make_request("a", 6, max_tokens=8))
    first, second = engine.plan(), engine.plan()
    with pytest.raises(RuntimeError, match="before update"):
        engine.scheduler.schedule(0.0)
    with pytest.raises(RuntimeError, match="plan 1 and result 1; step 0 is in flight"):
        engine.scheduler.update(second, StepResult(step=1, token_ids=((1,),)), 0.0)
    engine.finish(first)
    engine.finish(second)
    with pytest.raises(RuntimeError, match="no step is in flight"):
        engine.scheduler.update(second, StepResult(step=1, token_ids=((1,),)), 0.0)


def test_without_it_one_step_is_in_flight():
    assert (Engine().scheduler.max_in_flight, ahead().scheduler.max_in_flight) == (1, 2)


def test_chunks_of_a_prompt_follow_each_other_without_a_pause():
    engine = ahead(max_num_batched_tokens=8)
    engine.generate(make_request("a", 20, max_tokens=3))
    assert [shares(plan)["a"] for plan in engine.plans] == [(0, 8), (8, 8), (16, 4), (20, 1), (21, 1)]


def test_a_steady_batch_makes_the_same_plans_as_without():
    """Nothing ends early and nothing is short: what is planned is the same, only sooner."""
    requests = [make_request(f"r{i}", 5 + i, max_tokens=12, arrival_s=0.0) for i in range(5)]
    engines = [Engine(async_scheduling=wanted) for wanted in (False, True)]
    for engine in engines:
        engine.generate(*requests)
    assert [shares(plan) for plan in engines[0].plans] == [shares(plan) for plan in engines[1].plans]
    assert engines[0].tokens == engines[1].tokens


# ---- the end of a request


def test_an_end_by_length_is_known_ahead_and_not_overrun():
    engine = ahead()
    engine.generate(make_request("a", 6, max_tokens=4))
    assert [shares(plan)["a"] for plan in engine.plans] == [(0, 6), (6, 1), (7, 1), (8, 1)]
    assert engine.counters["discarded_tokens"] == 0 and engine.finished == {"a": "length"}


def test_an_end_at_the_context_is_not_overrun():
    engine = ahead(max_model_len=12)
    engine.generate(make_request("a", 9, max_tokens=50))
    assert len(engine.tokens["a"]) == 3 and engine.plans[-1].num_computed_tokens == (10,)


def test_while_the_last_token_is_in_flight_there_is_nothing_to_plan():
    engine = ahead()
    engine.add(make_request("a", 6, max_tokens=1))
    assert engine.plan_ahead() and not engine.plan_ahead()
    assert engine.scheduler.has_work
    engine.land()
    assert not engine.scheduler.has_work and engine.finished == {"a": "length"}


@pytest.mark.parametrize("stops", [{"eos": (7,)}, {"stop_token_ids": (7,)}], ids=["eos", "stop id"])
def test_an_end_found_late_costs_one_token_which_is_counted(stops):
    engine = ahead(script=says(5, 6, 7, 8))
    engine.generate(make_request("a", 6, max_tokens=20, **stops))
    assert engine.tokens["a"] == [5, 6, 7] and engine.finished == {"a": "stop"}
    assert engine.discarded["a"] == engine.counters["discarded_tokens"] == 1
    assert engine.plans[-1].num_computed_tokens == (8,) and all_free(engine)


def test_a_repetition_found_late_costs_one_token_which_is_counted():
    engine = ahead(script=says(*[5, 6] * 20))
    engine.generate(make_request("a", 6, max_tokens=20, repetition_detection=TWICE))
    assert engine.tokens["a"] == [5, 6, 5, 6] and engine.finished == {"a": "repetition"}
    assert engine.discarded["a"] == engine.counters["discarded_tokens"] == 1 and all_free(engine)


def test_an_end_that_is_both_costs_none():
    engine = ahead(script=says(5, 7))
    engine.generate(make_request("a", 6, max_tokens=2, eos=(7,)))
    assert engine.finished == {"a": "stop"} and engine.counters["discarded_tokens"] == 0


def test_without_planning_ahead_nothing_is_discarded():
    engine = Engine(script=says(5, 6, 7, 8))
    engine.generate(make_request("a", 6, max_tokens=20, eos=(7,)))
    assert engine.counters["discarded_tokens"] == 0


def test_blocks_of_a_request_that_ended_serve_the_next_plan_while_its_last_step_runs():
    engine = ahead(num_blocks=4, block_size=4, max_model_len=16, script=says(7))
    engine.add(make_request("a", 13, max_tokens=3, eos=(7,)), make_request("b", 13, max_tokens=2))
    engine.plan_ahead()
    engine.plan_ahead()
    engine.land()
    assert engine.finished == {"a": "stop"} and len(engine.in_flight) == 1
    engine.plan_ahead()
    assert shares(engine.in_flight[-1]) == {"b": (0, 13)}
    engine.run()
    assert engine.finished["b"] == "length"


# ---- blocks


def test_a_block_is_found_only_when_its_last_token_is_known():
    engine = ahead(block_size=4)
    engine.add(make_request("a", 7, max_tokens=6))
    engine.plan_ahead()
    engine.plan_ahead()  # runs position 7, whose token is in flight
    assert engine.manager.num_cached_blocks == 1
    engine.land()
    assert engine.manager.num_cached_blocks == 1
    engine.land()
    assert engine.manager.num_cached_blocks == 2


def test_a_prompt_starts_from_blocks_that_a_step_in_flight_fills():
    engine = ahead(block_size=4)
    engine.add(make_request("a", range(9), max_tokens=3))
    engine.plan_ahead()
    engine.add(make_request("b", [*range(8), 50], max_tokens=3))
    engine.plan_ahead()
    assert shares(engine.in_flight[1]) == {"a": (9, 1), "b": (8, 1)}
    engine.run()
    assert engine.tokens["b"] == alone(make_request("b", [*range(8), 50], max_tokens=3))


def test_nobody_is_preempted_while_a_step_is_in_flight():
    engine = ahead(num_blocks=4, block_size=4, max_model_len=16)
    requests = [make_request(name, 8, max_tokens=6) for name in "ab"]
    engine.add(*requests)
    engine.plan_ahead()
    assert not engine.plan_ahead()  # both need a block and none is free
    engine.land()
    engine.plan_ahead()
    assert engine.in_flight[0].preempted_request_ids == ("b",)
    engine.run()
    assert [engine.tokens[request.request_id] for request in requests] == [alone(request) for request in requests]
    assert engine.counters["preemptions"] == 1 and all_free(engine)


def test_who_is_short_of_blocks_sits_out_while_the_others_go_on():
    engine = ahead(num_blocks=5, block_size=4, max_model_len=16)
    engine.add(
        make_request("a", 8, max_tokens=6), make_request("b", 6, max_tokens=6), make_request("c", 3, max_tokens=9)
    )
    engine.plan_ahead()
    engine.plan_ahead()
    assert shares(engine.in_flight[1]) == {"b": (6, 1), "c": (3, 1)}
    engine.land()
    assert not engine.plan_ahead()
    engine.land()
    assert engine.plan_ahead()
    assert engine.in_flight[0].preempted_request_ids == ("c",) and "a" in engine.in_flight[0].request_ids
    engine.run()
    assert set(engine.finished.values()) == {"length"}


def test_blocks_that_a_landing_frees_save_from_preemption():
    engine = ahead(num_blocks=4, block_size=4, max_model_len=16)
    engine.add(make_request("a", 8, max_tokens=1), make_request("b", 8, max_tokens=6))
    assert engine.plan_ahead() and not engine.plan_ahead()
    engine.run()
    assert engine.counters["preemptions"] == 0 and engine.finished == {"a": "length", "b": "length"}


def test_a_more_urgent_request_evicts_once_nothing_is_in_flight():
    engine = ahead(num_blocks=4, block_size=4, max_model_len=16, scheduling_policy="priority")
    low = make_request("low", 12, max_tokens=4, priority=1)
    engine.add(low)
    engine.plan_ahead()
    high = make_request("high", 8, max_tokens=3, priority=0)
    engine.add(high)
    engine.plan_ahead()
    assert shares(engine.in_flight[1]) == {"low": (12, 1)}
    engine.land()
    assert not engine.plan_ahead()
    engine.land()
    engine.plan_ahead()
    assert engine.in_flight[0].preempted_request_ids == ("low",)
    assert shares(engine.in_flight[0]) == {"high": (0, 8)}
    engine.run()
    assert engine.tokens == {"low": alone(low), "high": alone(high)}


@pytest.mark.parametrize("layers", [(WINDOWED,), (FULL, WINDOWED)], ids=["window", "both"])
def test_a_lone_request_finishes_in_a_pool_made_for_it(layers):
    """What the step in flight will let go of is still held when the next one is planned."""
    request = make_request("a", 30, max_tokens=9)
    engine = ahead(num_blocks=1, layers=layers, max_num_batched_tokens=8, max_model_len=40)
    needed = engine.manager.layout.blocks_per_request(39, 8)
    engine = ahead(num_blocks=needed, layers=layers, max_num_batched_tokens=8, max_model_len=40)
    assert engine.generate(request) == [alone(request, 40)]
    assert engine.counters["preemptions"] == 0


# ---- aborts


def test_a_request_with_two_steps_in_flight():
    engine = ahead()
    engine.add(make_request("a", 6, max_tokens=9), make_request("b", 3, max_tokens=9))
    engine.plan_ahead()
    engine.plan_ahead()
    assert engine.scheduler.abort("a")
    assert engine.manager.num_free_blocks == engine.manager.num_blocks - 1
    engine.run()
    assert set(engine.outputs) == {"b"} and engine.tokens["b"] == alone(make_request("b", 3, max_tokens=9))
    assert engine.counters["discarded_tokens"] == 0 and all_free(engine)
    assert [plan.finished_request_ids for plan in engine.plans[:3]] == [(), (), ("a",)]


def test_all_requests_with_two_steps_in_flight():
    engine = ahead()
    engine.add(make_request("a", 6, max_tokens=9))
    engine.plan_ahead()
    engine.plan_ahead()
    engine.scheduler.abort("a")
    assert not engine.scheduler.has_work and not engine.plan_ahead()
    assert engine.scheduler.reset_prefix_cache()
    engine.land()
    engine.land()
    assert all_free(engine) and not engine.outputs


def test_an_id_used_again_gets_nothing_of_its_predecessor():
    engine = ahead()
    engine.add(make_request("a", 6, max_tokens=9, prompt_logprobs=0))
    engine.plan_ahead()
    engine.scheduler.abort("a")
    again = make_request("a", 9, max_tokens=3, prompt_logprobs=0)
    engine.add(again)
    engine.plan_ahead()
    assert engine.in_flight[1].finished_request_ids == ("a",)
    engine.run()
    assert engine.tokens["a"] == alone(again)
    first = engine.outputs["a"][0].prompt_logprobs
    assert len(first) == 9 and [row.token_ids[0] for row in first[1:]] == again.prompt_token_ids[1:]


# ---- faults


def test_a_failed_part_voids_what_the_next_step_built_on_it():
    engine = ahead(faults=failing(a=8), block_size=4)
    reader, bystander = make_request("b", [*range(8), 50], max_tokens=3), make_request("c", 5, max_tokens=3)
    engine.add(make_request("a", range(8), max_tokens=3))
    engine.plan_ahead()
    engine.add(reader, bystander)
    engine.plan_ahead()
    assert shares(engine.in_flight[1]) == {"a": (8, 1), "b": (8, 1), "c": (0, 5)}
    engine.land()
    assert engine.finished == {"a": "error"} and engine.num_waiting == 1
    engine.plan_ahead()
    assert engine.in_flight[1].preempted_request_ids == ("b",)
    assert shares(engine.in_flight[1]) == {"c": (5, 1), "b": (0, 9)}
    engine.land()  # of b came a token that counts for nothing
    assert set(engine.outputs) == {"a", "c"}
    engine.run()
    for request in (reader, bystander):
        assert engine.tokens[request.request_id] == alone(request)
    assert engine.finished == {"a": "error", "b": "length", "c": "length"} and all_free(engine)


def test_a_void_part_that_fails_too_does_not_end_the_request_that_starts_anew():
    """It read garbage, and that broke it."""
    broken = {"a": 8}
    engine = ahead(
        faults=lambda name, computed: "broken" if computed >= broken.get(name, 10**9) else None, block_size=4
    )
    reader = make_request("b", [*range(8), 50], max_tokens=3)
    engine.add(make_request("a", range(8), max_tokens=3))
    engine.plan_ahead()
    engine.add(reader)
    engine.plan_ahead()
    engine.land()
    engine.plan_ahead()
    broken["b"] = 9
    engine.land()
    del broken["b"]
    engine.run()
    assert engine.finished == {"a": "error", "b": "length"} and engine.tokens["b"] == alone(reader)


def test_a_fault_in_both_steps_is_told_once():
    engine = ahead(faults=failing(a=6))
    engine.add(make_request("a", 6, max_tokens=9))
    engine.run()
    assert [output.error for output in engine.outputs["a"]] == ["NaN logits"] and all_free(engine)


def test_a_fault_behind_the_end_is_not_told():
    engine = ahead(faults=failing(a=8), script=says(5, 7))
    engine.generate(make_request("a", 6, max_tokens=9, eos=(7,)))
    assert engine.finished == {"a": "stop"} and engine.tokens["a"] == [5, 7]
    assert engine.counters["finished_error"] == 0 and engine.counters["discarded_tokens"] == 0


@pytest.mark.parametrize("wanted", [False, True])
def test_a_reader_of_garbage_that_was_aborted_leaves_nothing_to_be_found(wanted):
    engine = Engine(async_scheduling=wanted, faults=failing(a=8), block_size=4)
    engine.add(make_request("a", range(8), max_tokens=3), make_request("b", range(13), max_tokens=3))
    engine.plan_ahead()
    engine.scheduler.abort("b")
    engine.land()
    assert engine.finished == {"a": "error"} and engine.manager.num_cached_blocks == 0
    again = make_request("c", range(14), max_tokens=3)
    assert engine.generate(again) == [alone(again)]
