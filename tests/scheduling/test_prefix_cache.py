"""The prefix cache as a request sees it: what is found, what is counted, and that tokens never change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request


def test_two_equal_prompts_in_one_step_share_blocks():
    engine = Engine()
    engine.add(make_request("a", range(10), seed=1), make_request("b", range(10), seed=2))
    assert engine.step() == {"a": 10, "b": 2}
    first, second = engine.plans[0].new_requests
    assert first.block_ids[0][:2] == second.block_ids[0][:2] and first.block_ids[0][2] != second.block_ids[0][2]
    engine.run()
    for name, seed in (("a", 1), ("b", 2)):
        assert engine.tokens[name] == alone(make_request(name, range(10), seed=seed))


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17])
def test_cold_and_warm_and_off_give_the_same_tokens(length):
    engine = Engine()
    answers = [engine.generate(make_request(name, range(length), max_tokens=9))[0] for name in ("cold", "warm")]
    off = Engine(caching=False).generate(make_request("off", range(length), max_tokens=9))
    assert answers == [off[0]] * 2
    assert engine.stats("cold").num_cached_tokens == 0
    assert engine.stats("warm").num_cached_tokens == (length - 1) // 4 * 4


def test_sampled_tokens_are_found_as_part_of_a_later_prompt():
    """A chat's next turn: prompt and answer of the last one, and something new."""
    engine = Engine()
    (answer,) = engine.generate(make_request("turn-1", range(10), max_tokens=9))
    turn = [*range(10), *answer, 500, 501]
    engine.generate(make_request("turn-2", turn, max_tokens=2))
    assert engine.stats("turn-2").num_cached_tokens == 16  # 18 of the 19 tokens were run, so 4 blocks are full


def test_a_salt_keeps_tenants_apart():
    engine = Engine()
    engine.generate(make_request("a", range(10), cache_salt="x"))
    for name, salt, cached in (("b", "y", 0), ("c", None, 0), ("d", "x", 8)):
        engine.generate(make_request(name, range(10), cache_salt=salt))
        assert engine.stats(name).num_cached_tokens == cached
        assert engine.tokens[name] == engine.tokens["a"]


def test_requests_with_prompt_logprobs_take_no_hits_and_others_find_theirs():
    engine = Engine()
    engine.generate(make_request("a", range(20), prompt_logprobs=0))
    engine.generate(make_request("b", range(20), prompt_logprobs=0))
    engine.generate(make_request("c", range(20)))
    assert [engine.stats(name).num_cached_tokens for name in "abc"] == [0, 0, 16]
    assert engine.counters["prefix_queries"] == 20


def test_queries_and_hits_are_counted_once_however_often_admission_is_tried():
    engine = Engine(num_blocks=8, block_size=4, max_model_len=32)
    engine.generate(make_request("warm", range(9), max_tokens=1))
    engine.add(make_request("a", 12, max_tokens=9))
    engine.step()
    engine.add(make_request("b", [*range(9), *range(700, 712)], max_tokens=1))
    for _ in range(4):
        assert set(engine.step()) == {"a"}
    engine.run()
    assert engine.counters["prefix_queries"] == 9 + 12 + 21
    assert engine.counters["cached_tokens"] == engine.stats("b").num_cached_tokens


def test_a_twin_is_swapped_in_the_next_plan_of_its_request():
    engine = Engine()
    engine.generate(make_request("a", range(8), max_tokens=1))
    engine.add(make_request("b", range(8), max_tokens=3))
    engine.step()
    own = engine.plans[-1].new_requests[0].block_ids[0]
    engine.step()
    (swap,) = engine.plans[-1].block_swaps
    shared = engine.plans[0].new_requests[0].block_ids[0]
    assert (swap.request_id, swap.group, swap.position, swap.block_id) == ("b", 0, 1, shared[1])
    assert own[1] != shared[1]
    assert engine.manager.num_cached_blocks == 2


def test_a_swap_dies_with_a_preempted_request():
    engine = Engine(num_blocks=6, block_size=4, max_model_len=24)
    engine.generate(make_request("a", range(8), max_tokens=1))
    engine.add(make_request("first", 11, max_tokens=8))
    engine.step()
    engine.add(make_request("b", range(8), max_tokens=4))
    assert engine.step() == {"first": 1, "b": 4}
    assert engine.step() == {"first": 1}
    assert engine.plans[-1].preempted_request_ids == ("b",)
    engine.run()
    assert not any(swap.request_id == "b" for plan in engine.plans[:4] for swap in plan.block_swaps)
    assert engine.tokens["b"] == alone(make_request("b", range(8), max_tokens=4))


def test_equal_greedy_requests_end_up_sharing_all_full_blocks():
    engine = Engine(num_blocks=40, max_model_len=64)
    engine.add(*[make_request(f"r{i}", range(9), max_tokens=20) for i in range(4)])
    for _ in range(18):
        engine.step()
    full, requests = (9 + 17) // 4, 4
    held = engine.manager.num_blocks - engine.manager.num_free_blocks
    assert held == full + requests
    engine.run()
    assert len({tuple(tokens) for tokens in engine.tokens.values()}) == 1


def test_a_hit_is_what_all_groups_accept():
    engine = Engine(layers=(FULL, WINDOWED))
    engine.generate(make_request("a", range(30), max_tokens=2))
    full, windowed = (group.index for group in engine.manager._groups)
    (deepest,) = (block.hash for block in full if not block.num_children)
    lost = windowed[deepest]
    windowed.remove(lost)
    engine.manager._pool.demote(lost)
    assert len(full) == 7 and len(windowed) == 6
    engine.generate(make_request("b", range(30), max_tokens=2))
    assert engine.stats("b").num_cached_tokens == 24
    assert engine.tokens["b"] == engine.tokens["a"]


def test_reset_is_refused_while_a_request_runs():
    engine = Engine()
    engine.add(make_request("a", range(10), max_tokens=3))
    engine.step()
    assert engine.scheduler.reset_prefix_cache() is False
    engine.run()
    assert engine.scheduler.reset_prefix_cache() is True
    engine.generate(make_request("b", range(10), max_tokens=3))
    assert engine.stats("b").num_cached_tokens == 0


@settings(max_examples=40)
@given(st.data())
def test_shared_prefixes_never_change_tokens(data):
    base = list(range(40))
    requests = []
    for i in range(data.draw(st.integers(2, 8))):
        shared = data.draw(st.integers(0, 30))
        own = data.draw(st.lists(st.integers(0, 1), max_size=6))
        requests.append(
            make_request(
                f"r{i}",
                [*base[:shared], *own, 77],
                data.draw(st.integers(1, 12)),
                cache_salt=data.draw(st.sampled_from([None, "x"])),
            )
        )
    engine = Engine(
        num_blocks=data.draw(st.integers(26, 40)),
        layers=data.draw(st.sampled_from([(FULL,), (FULL, WINDOWED)])),
        max_num_batched_tokens=data.draw(st.integers(4, 64)),
        max_model_len=52,
    )
    for request in requests:
        engine.add(request)
        for _ in range(data.draw(st.integers(0, 4))):
            if engine.scheduler.has_work:
                engine.step()
    engine.run()
    assert [engine.tokens[request.request_id] for request in requests] == [alone(request) for request in requests]
    assert engine.manager.num_free_blocks == engine.manager.num_blocks
