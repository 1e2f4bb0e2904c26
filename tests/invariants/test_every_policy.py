"""Properties of all policies, rules for victims, fairness and forecasts at once: bounds, liveness, no starvation.

What differs between them is only order; so each of these must hold for every combination.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import times
from tests.invariants.test_random_traffic import CONTEXT, check_tenants, engine_options, make_engine, requests
from tests.scheduling.harness import Engine, alone, make_request, run_unexecuted

POLICIES = ["fcfs", "priority", "prefix"]


@settings(max_examples=times(40))
@given(engine_options, st.data())
def test_the_limits_of_a_step_hold_and_everybody_gets_what_it_gets_alone(options, data):
    engine = make_engine(options)
    wanted = [data.draw(requests(f"r{i}")) for i in range(data.draw(st.integers(1, 10)))]
    for request in wanted:
        engine.add(request)
        if data.draw(st.booleans()):
            engine.step()
    while engine.scheduler.has_work:
        plan = engine.plan()
        assert 0 < plan.num_tokens <= engine.config.max_num_batched_tokens
        assert min(plan.num_scheduled_tokens) >= 1
        assert len(plan.request_ids) <= engine.num_running <= engine.config.max_num_seqs
        assert len(set(plan.request_ids)) == len(plan.request_ids)
        fallen = set(plan.preempted_request_ids)
        assert not fallen & set(plan.request_ids) - {new.request_id for new in plan.new_requests}
        check_tenants(engine)
        engine.finish(plan)
    assert [engine.tokens[request.request_id] for request in wanted] == [alone(request, CONTEXT) for request in wanted]


@settings(max_examples=times(30))
@given(engine_options, st.data())
def test_two_runs_make_equal_plans(options, data):
    wanted = [data.draw(requests(f"r{i}")) for i in range(data.draw(st.integers(1, 8)))]
    stepping = [data.draw(st.booleans()) for _ in wanted]

    def plans():
        engine = make_engine(options)
        for request, step in zip(wanted, stepping, strict=True):
            engine.add(request)
            if step:
                engine.step()
        engine.run(max_steps=5000)
        return engine.plans

    assert plans() == plans()


@pytest.mark.parametrize("victim", ["last", "least_urgent", "cheapest"])
@pytest.mark.parametrize("conservativeness", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_starves_under_an_endless_stream(policy, conservativeness, victim):
    """Requests of equal priority, most of them small and with a cached prefix, arrive faster than they are served. A
    large one without any prefix must finish while the stream goes on: after what was ahead of it when it came, those
    that may overtake it, and under `prefix` those that a hit puts before it until its age outweighs that."""
    engine = Engine(
        num_blocks=24,
        max_model_len=64,
        max_num_seqs=4,
        max_num_queued_reqs=10**6,
        scheduling_policy=policy,
        preemption_victim=victim,
        admission_conservativeness=conservativeness,
        max_bypasses=8,
        prefix_ageing=0.1,
    )
    shared = range(7000, 7012)
    engine.add(*[make_request(f"before{i}", [*shared, i], 6) for i in range(20)])
    num_arrived = 0
    for plan in run_unexecuted(engine.scheduler):
        if plan.step == 10:
            engine.scheduler.add(make_request("large", 60, 4), 10.0)
        if plan.step > 10 and "large" not in engine.scheduler._requests:
            break
        for _ in range(2):
            engine.scheduler.add(make_request(f"s{num_arrived}", [*shared, num_arrived], 6), float(plan.step))
            num_arrived += 1
    assert num_arrived > engine.counters["finished_length"], "the stream was not faster"
    assert plan.step < 250
    engine.manager.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tenant_that_floods_does_not_starve_another(policy):
    """With fair shares `b`, which asks for little, waits for a place and not for the queue of `a`."""
    engine = Engine(
        max_num_seqs=4, fair_share=True, scheduling_policy=policy, max_num_queued_reqs=10**6, num_blocks=100
    )
    waits = []
    asked_at = None
    for i in range(100):
        engine.add(make_request(f"a{i}", 6, 10, tenant="a"))
    for step in range(310):
        engine.add(make_request(f"more{step}", 6, 10, tenant="a"))
        if step % 40 == 10:
            engine.add(make_request(f"b{step}", 6, 10, tenant="b"))
            asked_at = step
        planned = engine.step()
        if asked_at is not None and f"b{asked_at}" in planned:
            waits.append(step - asked_at)
            asked_at = None
    assert len(waits) == 8 and max(waits) <= 11
