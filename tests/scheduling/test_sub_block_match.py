"""Sub-block match as a request sees it: the plan's copies, the counters, and that tokens never change."""

import pytest

from octavo.scheduling.plan import BlockCopy
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request


def test_the_plan_copies_the_shared_part_of_a_block():
    engine = Engine(sub_block_match=True)
    engine.generate(make_request("a", range(12), max_tokens=1))
    engine.add(make_request("b", [*range(10), 500, 501], max_tokens=3))
    assert engine.step() == {"b": 2}
    (plan, first) = engine.plans[-1], engine.plans[0]
    (copy,) = plan.block_copies
    assert copy == BlockCopy(0, first.new_requests[0].block_ids[0][2], plan.new_requests[0].block_ids[0][2], 2)
    engine.run()
    assert engine.tokens["b"] == alone(make_request("b", [*range(10), 500, 501], max_tokens=3))
    assert not any(plan.block_copies for plan in engine.plans[2:])


def test_copied_tokens_are_counted_among_the_cached_ones():
    engine = Engine(sub_block_match=True)
    engine.generate(make_request("a", range(12), max_tokens=1), make_request("other", 9, max_tokens=1))
    engine.generate(make_request("b", [*range(10), 500], max_tokens=1))
    assert engine.stats("b").num_cached_tokens == 10
    assert (engine.counters["cached_tokens"], engine.counters["copied_tokens"]) == (10, 2)


def test_a_fully_cached_prompt_computes_one_token():
    engine = Engine(sub_block_match=True)
    for name in ("cold", "warm"):
        engine.generate(make_request(name, range(16), max_tokens=5))
    assert engine.stats("warm").num_cached_tokens == 15
    assert engine.tokens["cold"] == engine.tokens["warm"]


@pytest.mark.parametrize("layers", [(FULL,), (FULL, WINDOWED), (WINDOWED,)])
@pytest.mark.parametrize("shared", range(12, 20))
def test_tokens_do_not_depend_on_where_prompts_part(shared, layers):
    engine = Engine(sub_block_match=True, layers=layers, num_blocks=128)
    requests = [
        make_request(f"r{i}", [*range(shared), *range(100 * i, 100 * i + 9)], max_tokens=9) for i in range(1, 5)
    ]
    for request in requests:
        engine.generate(request)
        assert engine.tokens[request.request_id] == alone(request)
        if request is not requests[0]:
            assert engine.stats(request.request_id).num_cached_tokens == shared


def test_a_source_evicted_in_the_same_plan_is_copied_before_it_is_written():
    """The pool is so small that the blocks of the first request go to the others while one copies from them."""
    engine = Engine(sub_block_match=True, num_blocks=7, max_model_len=28)
    engine.generate(make_request("a", range(12), max_tokens=1))
    wanted = [make_request(f"r{i}", [*range(10), 500 + i], max_tokens=8) for i in range(4)]
    engine.add(*wanted)
    engine.run()
    assert [engine.tokens[request.request_id] for request in wanted] == [alone(request) for request in wanted]
    assert engine.counters["copied_tokens"] > 0


def test_an_abort_between_plan_and_result_lets_go_of_the_source():
    engine = Engine(sub_block_match=True)
    engine.generate(make_request("a", range(12), max_tokens=1))
    engine.add(make_request("b", [*range(10), 500], max_tokens=3))
    plan = engine.plan()
    assert plan.block_copies
    engine.scheduler.abort("b")
    engine.manager.check()
    engine.finish(plan)
    assert engine.manager.num_free_blocks == engine.manager.num_blocks


def test_a_failing_copier_spoils_nobody():
    engine = Engine(sub_block_match=True, faults=lambda name, computed: "broken" if name == "b" else None)
    engine.generate(make_request("a", range(12), max_tokens=1))
    engine.generate(make_request("b", [*range(10), 500, 501], max_tokens=3))
    engine.generate(make_request("c", [*range(10), 500, 502], max_tokens=3))
    assert engine.finished["b"] == "error"
    assert engine.stats("c").num_cached_tokens == 10
    assert engine.tokens["c"] == alone(make_request("c", [*range(10), 500, 502], max_tokens=3))
