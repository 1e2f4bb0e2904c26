"""The step semantics that users know from vLLM's V1 scheduler: what is the same, by which test, and what differs.

`SHOWN_BY` names a test for each behaviour that applies and is asserted elsewhere; those not asserted elsewhere follow
below. Where Octavo does better on purpose, the entry says so.
"""

import importlib

import pytest

from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request

SHOWN_BY = {
    "a preempted request comes back with all its tokens": (
        "test_preemption.test_a_victim_keeps_its_outputs_and_comes_back_as_a_new_request_with_all_its_tokens"
    ),
    "a duplicate id is refused": "test_admission.test_the_id_of_a_live_request",
    "finished ids are reported exactly once": "test_step.test_finished_ids_are_reported_once_with_the_next_plan",
    "the sum of scheduled tokens stays within the budget": (
        "test_step.test_the_budget_bounds_the_sum_and_those_behind_it_stay_running"
    ),
    "no more than max_num_seqs run": "test_step.test_no_more_than_max_num_seqs_run",
    "running requests go first, in list order": ("test_step.test_running_requests_go_first_in_the_order_of_admission"),
    "the long-prefill cap needs a second request": (
        "test_step.test_2050_tokens_with_a_threshold_of_512_run_in_five_chunks_beside_another_request"
    ),
    "the FCFS victim is the last of running": "test_preemption.test_fcfs_takes_the_last_of_running",
    "the priority victim is the worst": (
        "test_preemption.test_priority_takes_the_least_urgent_and_among_equals_the_latest"
    ),
    "a victim already scheduled is refunded and vanishes": (
        "test_preemption.test_the_budget_of_a_withdrawn_request_is_refunded"
    ),
    "better: what a withdrawn victim published cannot be found": (
        "test_preemption.test_a_withdrawn_request_leaves_nothing_findable_that_was_never_computed"
    ),
    "nobody is admitted in a step that preempted": "test_preemption.test_nothing_is_admitted_in_a_step_that_preempted",
    "a resumed request may hit its own blocks": "test_preemption.test_a_resumed_request_finds_its_own_blocks",
    "better: a more urgent request evicts": "test_eviction.test_a_more_urgent_request_takes_a_running_place",
    "better: victims by the cost of recomputing them": (
        "test_victims.test_cheapest_takes_the_one_with_the_least_to_recompute_per_block"
    ),
    "better: recomputed tokens are counted": (
        "test_victims.test_recomputed_tokens_are_what_was_computed_beyond_one_pass"
    ),
    "preempted requests pass the admission gates": "test_admission.test_preempted_requests_pass_the_same_gate",
    "better: no head-of-line blocking": "test_bypass.test_a_waiting_request_that_does_not_fit_is_stepped_over",
    "a lookup counts once however often it is tried": (
        "test_prefix_cache.test_queries_and_hits_are_counted_once_however_often_admission_is_tried"
    ),
    "the whole known sequence must fit": (
        "test_admission.test_all_known_tokens_must_fit_although_the_first_chunk_would"
    ),
    "better: the gate looks at what running requests will need": (
        "test_forecast.test_at_1_everything_they_may_come_to_hold_must_fit"
    ),
    "the watermark holds only beside running requests": (
        "test_admission.test_the_watermark_does_not_hold_in_an_empty_engine"
    ),
    "prefill statistics belong to the first admission": "test_preemption.test_prompt_tokens_are_not_counted_again",
    "priority order is (priority, arrival, id)": (
        "test_policies.test_priority_admits_by_priority_then_arrival_then_id"
    ),
    "two equal prompts in one step share": "test_prefix_cache.test_two_equal_prompts_in_one_step_share_blocks",
    "prompt_logprobs requests read no hits": (
        "test_prefix_cache.test_requests_with_prompt_logprobs_take_no_hits_and_others_find_theirs"
    ),
    "a reset is refused while blocks are used": "test_prefix_cache.test_reset_is_refused_while_a_request_runs",
    "tokens count as computed when scheduled": (
        "test_step.test_tokens_count_as_computed_from_the_moment_they_are_scheduled"
    ),
    "unfinished prompts give no output": "test_outputs.test_unfinished_prompts_give_no_output",
    "results of removed requests are ignored": "test_abort.test_a_request_whose_step_is_in_flight",
    "tokens after the stop are dropped": (
        "test_stop.test_tokens_behind_the_one_that_ends_are_dropped_with_their_logprobs"
    ),
    "length beats min_tokens": "test_stop.test_length_beats_min_tokens",
    "a prompt of all but one token yields exactly one": (
        "test_admission.test_a_prompt_of_all_but_one_token_of_the_context_yields_exactly_one_token"
    ),
    "one output with a finish reason each": (
        "test_outputs.test_every_request_emits_exactly_one_output_with_a_finish_reason"
    ),
    "a finish keeps the order of the rest": "test_step.test_a_finish_does_not_disturb_the_order_of_the_rest",
    "abort is idempotent, in every state": "test_abort.test_abort_is_idempotent",
    "siblings of an aborted request go on": "test_abort.test_siblings_are_unaffected",
    "the first token's step is ceil of uncached over budget": (
        "test_step.test_the_first_token_of_a_lone_request_comes_in_step_ceil_of_uncached_over_budget"
    ),
    "a step exists only for work": "test_step.test_schedule_gives_a_plan_if_and_only_if_there_is_work",
    "better: an error of one request ends that request": (
        "test_faults.test_a_failed_request_ends_with_an_error_and_the_others_go_on"
    ),
}


@pytest.mark.parametrize("behaviour", SHOWN_BY)
def test_the_test_that_shows_it_exists(behaviour):
    module, _, name = SHOWN_BY[behaviour].partition(".")
    assert callable(getattr(importlib.import_module(f"tests.scheduling.{module}"), name))


def test_skipped_requests_return_in_their_order_before_those_not_looked_at():
    engine = Engine(num_blocks=8, max_model_len=32, max_bypasses=16)
    engine.add(make_request("a", 5, max_tokens=20))
    engine.step()
    bigs = [make_request(f"big{i}", 25, max_tokens=1) for i in range(6)]
    engine.add(*bigs, make_request("small", 2, max_tokens=1))
    engine.step()
    waiting = [request.request_id for request in engine.scheduler._waiting]
    assert waiting == [*[big.request_id for big in bigs], "small"]
    engine.run()
    order = [new.request_id for plan in engine.plans for new in plan.new_requests if new.request_id[:3] == "big"]
    assert order == [big.request_id for big in bigs]


def test_without_preemption_running_requests_are_never_moved_relative_to_each_other():
    engine = Engine(num_blocks=400, max_num_batched_tokens=20)
    for i in range(12):
        engine.add(make_request(f"r{i}", 3 + 5 * i % 17, max_tokens=2 + 7 * i % 11))
        engine.step()
    engine.run()
    assert engine.counters["preemptions"] == 0
    for plan in engine.plans:
        assert list(plan.request_ids) == sorted(plan.request_ids, key=lambda name: int(name[1:]))


def test_a_request_is_in_one_place_at_a_time():
    engine = Engine(num_blocks=12, max_model_len=40)
    engine.add(*[make_request(f"r{i}", 5 + i, max_tokens=20) for i in range(6)])
    while engine.scheduler.has_work:
        engine.step()
        running = set(engine.scheduler._running)
        waiting = set(engine.scheduler._waiting)
        assert not running & waiting
        assert running | waiting == set(engine.scheduler._requests.values())
    assert engine.counters["preemptions"] > 0


def test_an_idle_engine_uses_no_block_even_with_everything_cached():
    engine = Engine(layers=(FULL, WINDOWED))
    engine.generate(make_request("a", 20))
    load = engine.scheduler.load()
    assert load.num_cached_blocks > 0 and load.num_free_blocks == load.num_blocks


def test_a_chunked_resumption_yields_no_token_until_all_known_tokens_are_through():
    """A request that comes back with outputs is a prefill of prompt and outputs, in chunks like any other."""
    engine = Engine(num_blocks=8, max_model_len=32, caching=False, max_num_batched_tokens=6)
    requests = [make_request("a", 8, 18), make_request("b", 8, 18)]
    engine.add(*requests)
    engine.run()
    resumed = next(plan.step for plan in engine.plans if plan.step and plan.new_requests and plan.step > 5)
    chunks = [
        dict(zip(plan.request_ids, plan.num_scheduled_tokens, strict=True)).get("b", 0)
        for plan in engine.plans[resumed:]
    ]
    assert chunks[0] > 1 and chunks[1] > 1
    for request in requests:
        assert engine.tokens[request.request_id] == alone(request)


def test_a_short_request_behind_a_long_prompt_gets_its_first_chunk_in_time():
    """Within ceil(long / budget) + 1 steps."""
    engine = Engine(num_blocks=64, max_num_batched_tokens=16)
    engine.add(make_request("long", 100, 4), make_request("short", 4, 4))
    steps = next(number for number in range(1, 20) if "short" in engine.step())
    assert steps <= -(-100 // 16) + 1
