"""Who falls, what that costs, and that it does not go on and on."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError
from octavo.scheduling.preemption import VICTIMS
from tests.scheduling.harness import Engine, alone, make_request, run_unexecuted


def fallen(engine):
    return [request_id for plan in engine.plans for request_id in plan.preempted_request_ids]


def run_until_somebody_falls(engine):
    while not engine.counters["preemptions"]:
        engine.step()
    return engine.plans[-1].preempted_request_ids[0]


def test_an_unknown_rule_is_refused_at_start_with_the_known_ones():
    with pytest.raises(ConfigError, match="preemption_victim='fate': known rules are auto, cheapest, last, least_urg"):
        Engine(preemption_victim="fate")


@pytest.mark.parametrize(("rule", "victim"), [("auto", "c"), ("last", "c"), ("least_urgent", "b")])
def test_rules_can_be_combined_with_policies(rule, victim):
    """Under fcfs all are of one class; the rule that looks at priorities takes `b`."""
    engine = Engine(num_blocks=9, max_model_len=36, preemption_victim=rule)
    engine.add(*[make_request(name, 8, 9, priority=p) for name, p in (("a", 1), ("b", 7), ("c", 3))])
    assert run_until_somebody_falls(engine) == victim


@pytest.mark.parametrize("rule", VICTIMS)
def test_under_priority_no_rule_takes_a_more_urgent_request_while_a_less_urgent_one_runs(rule):
    engine = Engine(num_blocks=9, max_model_len=36, preemption_victim=rule, scheduling_policy="priority")
    engine.add(*[make_request(name, 8, 9, priority=p) for name, p in (("a", 1), ("b", 7), ("c", 3))])
    assert run_until_somebody_falls(engine) == "b"


def test_cheapest_takes_the_one_with_the_least_to_recompute_per_block():
    """`late` holds 5 blocks for 17 tokens, `short` 2 for 5: 3.4 tokens a block against 2.5. `first` is spared."""
    engine = Engine(num_blocks=11, max_model_len=44, preemption_victim="cheapest", max_num_batched_tokens=64)
    engine.add(make_request("first", 15, 9), make_request("short", 5, 20), make_request("late", 17, 20))
    assert run_until_somebody_falls(engine) == "short"


def test_cheapest_counts_blocks_shared_with_others_neither_as_freed_nor_as_lost():
    """`twin` shares its prompt with `first`: to free its one block costs a token or two. Last admitted is `own`."""
    engine = Engine(num_blocks=13, max_model_len=44, preemption_victim="cheapest", max_num_batched_tokens=64)
    engine.add(make_request("first", [*range(16), 50, 51, 52], 20), make_request("twin", [*range(16), 60], 20))
    engine.add(make_request("own", 23, 20))
    assert run_until_somebody_falls(engine) == "twin"
    engine.run()
    assert engine.tokens["twin"] == alone(make_request("twin", [*range(16), 60], 20))


def test_cheapest_never_takes_who_arrived_first_unless_it_is_alone():
    engine = Engine(num_blocks=10, max_model_len=40, preemption_victim="cheapest", max_num_batched_tokens=64)
    engine.add(*[make_request(f"r{i}", 2 + 7 * i, 12) for i in range(3)])
    engine.run()
    assert fallen(engine) and "r0" not in fallen(engine)


# ---- what is computed twice is counted


@settings(max_examples=40)
@given(st.data())
def test_recomputed_tokens_are_what_was_computed_beyond_one_pass(data):
    """Without a cache: computed = needed once + recomputed, for each request and in all."""
    engine = Engine(
        num_blocks=data.draw(st.integers(10, 14)),
        max_model_len=40,
        caching=False,
        preemption_victim=data.draw(st.sampled_from(["last", "least_urgent", "cheapest"])),
        scheduling_policy=data.draw(st.sampled_from(["fcfs", "priority"])),
        max_num_batched_tokens=data.draw(st.integers(3, 40)),
    )
    requests = [
        make_request(f"r{i}", data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20)), priority=i % 2)
        for i in range(data.draw(st.integers(2, 8)))
    ]
    engine.generate(*requests)
    total = 0
    for request in requests:
        stats = engine.stats(request.request_id)
        once = len(request.prompt_token_ids) + stats.num_output_tokens - 1
        assert stats.num_computed_tokens == once + stats.num_recomputed_tokens
        assert (stats.num_recomputed_tokens > 0) <= (stats.num_preemptions > 0)
        total += stats.num_recomputed_tokens
    assert engine.counters["recomputed_tokens"] == total


def test_tokens_found_again_in_the_cache_are_not_recomputed():
    """With a cache: computed + found = needed once + recomputed, where what is found again was computed before."""
    engine = Engine(num_blocks=12, max_model_len=40)
    requests = [make_request(f"r{i}", 5 + i, max_tokens=20) for i in range(6)]
    engine.generate(*requests)
    counters = engine.counters
    once = sum(len(request.prompt_token_ids) + 19 for request in requests)
    assert counters["preemptions"] > 0 and counters["resumed_cached_tokens"] > 0
    assert counters["computed_tokens"] == once + counters["recomputed_tokens"] - counters["cached_tokens"]


# ---- no thrash


ALIKE = [(40, 60)] * 32
"""Prompt and output tokens. All want their blocks at the same time."""
MIXED = [(8 + 13 * i % 90, 10 + 29 * i % 140) for i in range(96)]
"""Three times as many as may run, of all lengths."""


def run_workload(workload, num_blocks, **options):
    """(scheduler counters, most blocks held)"""
    engine = Engine(num_blocks=num_blocks, max_model_len=256, max_num_seqs=32, max_num_batched_tokens=256, **options)
    engine.add(*[make_request(f"r{i}", prompt, output, priority=i % 3) for i, (prompt, output) in enumerate(workload)])
    manager = engine.manager
    most = max(manager.num_blocks - manager.num_free_blocks for _ in run_unexecuted(engine.scheduler))
    manager.check()
    assert engine.counters["finished_length"] == len(workload)
    return engine.counters, most


@pytest.mark.parametrize("workload", [ALIKE, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("conservativeness", [0.0, 0.7])
@pytest.mark.parametrize(
    ("policy", "rule"), [*itertools.product(["fcfs", "priority"], VICTIMS), ("prefix", "last"), ("prefix", "cheapest")]
)
def test_a_pool_5_percent_too_small_finishes_within_1_3_times_the_ideal_number_of_steps(
    workload, policy, rule, conservativeness
):
    ideal, most = run_workload(workload, 4096)
    assert ideal["preemptions"] == 0
    counters, _ = run_workload(
        workload,
        int(0.95 * most),
        scheduling_policy=policy,
        preemption_victim=rule,
        admission_conservativeness=conservativeness,
    )
    assert counters["steps"] <= 1.3 * ideal["steps"]
    assert counters["recomputed_tokens"] <= 0.1 * ideal["computed_tokens"]


def test_a_request_that_comes_back_has_headroom():
    """It starts again only when every other running request could take a block more: no fall in the next steps."""
    engine = Engine(num_blocks=12, max_model_len=48)
    engine.add(*[make_request(f"r{i}", 10, 14) for i in range(4)])
    engine.run()
    last_fall = {}
    for plan in engine.plans:
        for name in plan.preempted_request_ids:
            assert plan.step - last_fall.get(name, -10) > 4, "a block lasts four steps"
            last_fall[name] = plan.step
        for new in plan.new_requests:
            if new.request_id in last_fall:
                last_fall[new.request_id] = plan.step
    assert last_fall
