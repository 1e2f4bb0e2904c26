"""A scheduler that has served many requests holds no more than one that has served few."""

import gc
import random
import tracemalloc

import pytest

from tests.scheduling.harness import Engine, make_request, run_unexecuted


def served(engine):
    return sum(engine.scheduler.counters.finished.values())


@pytest.mark.parametrize("policy", ["fcfs", "priority", "prefix"])
def test_memory_does_not_grow_with_the_number_of_requests_served(policy):
    """What is allocated after 1,000 requests, and after 3,000 of the same kind, by many tenants, some aborted."""
    rng = random.Random(3)
    engine = Engine(
        num_blocks=24, max_model_len=64, scheduling_policy=policy, fair_share=True, max_bypasses=4, sub_block_match=True
    )
    arrived, sizes = 0, []
    engine.add(make_request("first", 3, 2))
    tracemalloc.start()
    try:
        for _ in run_unexecuted(engine.scheduler):
            while arrived < 3000 and arrived - served(engine) < 24:
                prompt = [*range(rng.choice([0, 8, 20])), *[rng.randrange(9) for _ in range(rng.randint(1, 9))]]
                name = f"r{arrived}"
                engine.add(
                    make_request(name, prompt, rng.randint(1, 6), tenant=f"t{arrived % 99}", priority=rng.randrange(3))
                )
                arrived += 1
                if rng.random() < 0.05:
                    engine.scheduler.abort(name)
            if served(engine) >= [1000, 2900, 10**9][len(sizes)]:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert served(engine) == 3001 and len(sizes) == 2
    assert sizes[1] - sizes[0] < 40_000
