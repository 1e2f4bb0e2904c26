"""Preemption by recomputation: who falls, what it keeps, and how it comes back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.harness import Engine, alone, make_request


def crowded(**options):
    """Two requests of 2 blocks each fill a pool of 4: the next block makes one of them fall."""
    engine = Engine(**{"num_blocks": 4, "block_size": 4, "max_model_len": 16, **options})
    engine.add(make_request("a", 8, max_tokens=6), make_request("b", 8, max_tokens=6))
    engine.step()
    return engine


def test_fcfs_takes_the_last_of_running():
    engine = crowded()
    assert engine.step() == {"a": 1}
    assert engine.plans[-1].preempted_request_ids == ("b",)


def test_a_victim_keeps_its_outputs_and_comes_back_as_a_new_request_with_all_its_tokens():
    engine = crowded()
    engine.run()
    resumed = next(data for plan in engine.plans[1:] for data in plan.new_requests)
    assert resumed.request_id == "b"
    assert resumed.num_prompt_tokens == 8
    assert resumed.token_ids == [*make_request("b", 8).prompt_token_ids, engine.tokens["b"][0]]
    assert engine.tokens["b"] == alone(make_request("b", 8, max_tokens=6))
    assert engine.stats("b").num_preemptions == 1 and engine.stats("a").num_preemptions == 0
    assert engine.stats("b").preempted_s == [1.0] and engine.stats("a").preempted_s == []  # when step 1 was planned


def test_a_victim_waits_at_the_head_of_the_queue():
    engine = crowded()
    engine.add(make_request("c", 1, max_tokens=2))
    engine.run()
    admitted = [data.request_id for plan in engine.plans for data in plan.new_requests]
    assert admitted == ["a", "b", "b", "c"]


def test_nothing_is_admitted_in_a_step_that_preempted():
    """The small request would fit into the blocks just freed; they are for those who were short."""
    engine = crowded()
    engine.add(make_request("small", 1, max_tokens=2))
    assert engine.step() == {"a": 1}
    assert engine.plans[-1].new_requests == ()


def test_nobody_more_urgent_is_admitted_either():
    """Under `priority` the newcomer stands before the victim and needs less than that has freed."""
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16, scheduling_policy="priority")
    engine.add(make_request("a", 8, max_tokens=6, priority=1), make_request("victim", 8, max_tokens=6, priority=5))
    engine.step()
    engine.add(make_request("urgent", 1, max_tokens=2, priority=0))
    assert engine.step() == {"a": 1}
    assert engine.manager.num_free_blocks == 1
    assert engine.step() == {"a": 1, "urgent": 1}


def test_preempted_ids_are_reported_once():
    engine = crowded()
    engine.run()
    reported = [request_id for plan in engine.plans for request_id in plan.preempted_request_ids]
    assert reported == ["b"] and engine.counters["preemptions"] == 1


def test_several_victims_of_one_step_come_back_in_their_old_order():
    engine = Engine(num_blocks=8, block_size=4, max_model_len=32, max_num_batched_tokens=64)
    engine.add(*[make_request(name, 8, max_tokens=4) for name in "abcd"])
    engine.step()
    engine.step()
    assert engine.plans[-1].preempted_request_ids == ("d", "c")
    engine.run()
    admitted = [data.request_id for plan in engine.plans[1:] for data in plan.new_requests]
    assert admitted == ["c", "d"]


def test_a_resumed_request_finds_its_own_blocks():
    engine = Engine(num_blocks=6, block_size=4, max_model_len=24)
    engine.add(make_request("a", 8, max_tokens=2), make_request("b", 13, max_tokens=5))
    engine.step()
    engine.step()
    assert engine.plans[-1].preempted_request_ids == ("b",)
    engine.run()
    assert engine.tokens["b"] == alone(make_request("b", 13, max_tokens=5))
    assert engine.counters["resumed_cached_tokens"] > 0
    assert engine.counters["recomputed_tokens"] < 13


def test_recomputed_tokens_are_those_computed_twice():
    engine = crowded(caching=False)
    engine.run()
    ledger = engine.stats("b")
    assert ledger.num_recomputed_tokens == 8 == engine.counters["recomputed_tokens"]
    assert ledger.num_computed_tokens == 8 + 6 - 1 + 8
    assert engine.counters["computed_tokens"] == 2 * (8 + 6 - 1) + 8


def test_a_victim_in_the_middle_of_its_prompt_loses_only_what_it_had_computed():
    engine = Engine(num_blocks=6, block_size=4, max_model_len=24, caching=False, max_num_batched_tokens=2)
    engine.add(make_request("a", 3, max_tokens=12), make_request("b", 16, max_tokens=1))
    while not engine.counters["preemptions"]:
        engine.step()
    computed = [
        count
        for plan in engine.plans
        for request_id, count in zip(plan.request_ids, plan.num_scheduled_tokens, strict=True)
        if request_id == "b"
    ]
    assert 0 < sum(computed) < 16
    engine.run()
    assert engine.stats("b").num_recomputed_tokens == sum(computed)


def test_prompt_tokens_are_not_counted_again():
    engine = crowded()
    engine.run()
    assert engine.counters["prompt_tokens"] == 16
    assert engine.counters["prefix_queries"] == 16
    assert engine.counters["cached_tokens"] == 0
    assert engine.stats("b").num_cached_tokens == 0


def test_no_delta_is_lost_or_repeated():
    engine = Engine(num_blocks=12, block_size=4, max_model_len=40)
    requests = [make_request(f"r{i}", 5 + i, max_tokens=20) for i in range(6)]
    engine.generate(*requests)
    assert engine.counters["preemptions"] >= 6
    for request in requests:
        assert engine.tokens[request.request_id] == alone(request)
        assert engine.stats(request.request_id).num_output_tokens == 20


# ---- the priority policy


def test_priority_takes_the_least_urgent_and_among_equals_the_latest():
    engine = Engine(num_blocks=9, block_size=4, max_model_len=36, scheduling_policy="priority")
    engine.add(make_request("a", 8, max_tokens=9, priority=1, arrival_s=1.0))
    engine.add(make_request("b", 8, max_tokens=9, priority=2, arrival_s=2.0))
    engine.step()
    engine.add(make_request("c", 8, max_tokens=9, priority=2, arrival_s=1.5))
    assert set(engine.step()) == {"a", "b", "c"}
    engine.run()
    preempted = [request_id for plan in engine.plans for request_id in plan.preempted_request_ids]
    assert preempted[0] == "b" and "a" not in preempted
    for name in "abc":
        assert engine.tokens[name] == alone(make_request(name, 8, max_tokens=9))


def test_a_victim_already_scheduled_in_this_step_vanishes_from_it():
    """`victim` is walked first and fits; then `urgent` needs a block, and the victim's are the ones to take."""
    engine = Engine(
        num_blocks=5, block_size=4, max_model_len=20, scheduling_policy="priority", max_num_batched_tokens=16
    )
    engine.add(make_request("victim", 6, max_tokens=8, priority=5))
    engine.step()
    engine.add(make_request("urgent", 12, max_tokens=8, priority=1))
    assert engine.step() == {"victim": 1, "urgent": 12}
    assert engine.step() == {"urgent": 1}
    assert engine.plans[-1].preempted_request_ids == ("victim",)
    engine.run()
    assert engine.tokens["victim"] == alone(make_request("victim", 6, max_tokens=8))
    assert engine.tokens["urgent"] == alone(make_request("urgent", 12, max_tokens=8))


def test_the_budget_of_a_withdrawn_request_is_refunded():
    """Of 3 tokens `late` gets what `victim` and `urgent` leave: one, and two once the victim is gone."""
    engine = Engine(
        num_blocks=4, block_size=4, max_model_len=16, scheduling_policy="priority", max_num_batched_tokens=3
    )
    engine.add(make_request("victim", 3, max_tokens=8, priority=5))
    engine.step()
    engine.add(make_request("urgent", 2, max_tokens=8, priority=1))
    engine.step()
    engine.add(make_request("late", 4, max_tokens=8, priority=1))
    assert [engine.step() for _ in range(3)] == [
        {"victim": 1, "urgent": 1, "late": 1},
        {"victim": 1, "urgent": 1, "late": 1},
        {"urgent": 1, "late": 2},
    ]
    assert engine.plans[-1].preempted_request_ids == ("victim",)
    engine.run()


def test_a_withdrawn_request_leaves_nothing_findable_that_was_never_computed():
    """In its last step `victim` would have filled two blocks; `urgent` takes one of them, the other stays behind.
    Were it findable, the victim would find it when it comes back, and read what nobody wrote."""
    engine = Engine(
        num_blocks=10,
        block_size=4,
        max_model_len=64,
        scheduling_policy="priority",
        max_num_batched_tokens=12,
        long_prefill_token_threshold=8,
    )
    engine.add(make_request("victim", 40, max_tokens=1, priority=5))
    engine.step()
    engine.add(make_request("urgent", 3, max_tokens=4, priority=1))
    assert engine.step() == {"victim": 8, "urgent": 3}
    assert engine.step() == {"victim": 8, "urgent": 1}
    assert engine.manager.num_cached_blocks == 8
    assert engine.step() == {"urgent": 1}
    assert engine.manager.num_cached_blocks == 8
    engine.run()
    assert engine.counters["resumed_cached_tokens"] == 28
    assert engine.tokens["victim"] == alone(make_request("victim", 40, max_tokens=1))


def test_a_request_that_falls_itself_does_not_end_the_walk():
    """`low` needs a block and is the least urgent: it falls, and `high` behind it gets the block it needs, too."""
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16, scheduling_policy="priority")
    engine.add(make_request("low", 10, max_tokens=6, priority=9))
    engine.step()
    engine.add(make_request("high", 3, max_tokens=8, priority=1))
    assert [engine.step() for _ in range(3)] == [{"low": 1, "high": 3}, {"low": 1, "high": 1}, {"high": 1}]
    assert engine.plans[-1].preempted_request_ids == ("low",)
    engine.run()
    assert engine.tokens["low"] == alone(make_request("low", 10, max_tokens=6))
    assert engine.tokens["high"] == alone(make_request("high", 3, max_tokens=8))


@settings(max_examples=25)
@given(st.data())
def test_tokens_do_not_depend_on_preemption(data):
    policy = data.draw(st.sampled_from(["fcfs", "priority"]))
    requests = [
        make_request(f"r{i}", data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20)), priority=i % 3)
        for i in range(data.draw(st.integers(2, 8)))
    ]
    engine = Engine(
        num_blocks=data.draw(st.integers(10, 16)),
        max_model_len=40,
        scheduling_policy=policy,
        max_num_batched_tokens=data.draw(st.integers(3, 40)),
    )
    assert engine.generate(*requests) == [alone(request, 40) for request in requests]
