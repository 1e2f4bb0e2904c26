"""Priority eviction: a waiting request of higher priority takes the place or the blocks of running ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.harness import Engine, alone, make_request


def make_engine(**options):
    return Engine(**{"scheduling_policy": "priority", "num_blocks": 8, "block_size": 4, "max_model_len": 32, **options})


def test_a_more_urgent_request_takes_a_running_place():
    engine = make_engine(max_num_seqs=2)
    engine.add(make_request("a", 3, 9, priority=1), make_request("b", 3, 9, priority=2))
    engine.step()
    engine.add(make_request("urgent", 3, 2, priority=0))
    assert engine.step() == {"a": 1, "urgent": 3}
    assert engine.plans[-1].preempted_request_ids == ("b",)
    engine.run()
    assert next(iter(engine.finished)) == "urgent"
    for request in (make_request("a", 3, 9), make_request("b", 3, 9), make_request("urgent", 3, 2)):
        assert engine.tokens[request.request_id] == alone(request)


def test_a_more_urgent_request_takes_blocks():
    """3 of 8 blocks are free, `urgent` needs 5: the least urgent one yields its 3, the other keeps its own."""
    engine = make_engine()
    engine.add(make_request("low", 9, 5, priority=9), make_request("mid", 6, 5, priority=5))
    engine.step()
    engine.add(make_request("urgent", 18, 2, priority=0))
    assert engine.step() == {"mid": 1, "urgent": 18}
    assert engine.plans[-1].preempted_request_ids == ("low",)
    engine.run()
    assert engine.counters["preemptions"] == 1
    assert engine.tokens["low"] == alone(make_request("low", 9, 5))


def test_nobody_falls_if_all_of_them_were_not_enough():
    engine = make_engine()
    engine.add(make_request("equal", 14, 5, priority=0), make_request("low", 4, 9, priority=5))
    engine.step()
    engine.add(make_request("urgent", 25, 2, priority=0))
    assert engine.step() == {"equal": 1, "low": 1}


@pytest.mark.parametrize("options", [{"priority_eviction": False}, {"scheduling_policy": "fcfs"}])
def test_off_nobody_waiting_takes_anything(options):
    engine = make_engine(max_num_seqs=1, **options)
    engine.add(make_request("low", 3, 5, priority=9))
    engine.step()
    engine.add(make_request("urgent", 3, 2, priority=0))
    engine.run()
    assert list(engine.finished) == ["low", "urgent"] and engine.counters["preemptions"] == 0


def test_equal_priorities_never_evict():
    engine = make_engine(max_num_seqs=1)
    engine.add(make_request("late", 3, 5, priority=1, arrival_s=9.0))
    engine.step()
    engine.add(make_request("early", 3, 5, priority=1, arrival_s=1.0))
    engine.run()
    assert list(engine.finished) == ["late", "early"]


def test_nobody_is_evicted_while_places_and_blocks_last():
    engine = make_engine(num_blocks=32)
    engine.add(make_request("low", 8, 5, priority=9))
    engine.step()
    engine.add(make_request("urgent", 8, 5, priority=0))
    assert engine.step() == {"low": 1, "urgent": 8}
    engine.run()
    assert engine.counters["preemptions"] == 0


def test_an_evicted_request_does_not_come_back_in_the_same_step():
    """`urgent` needs one block of the five that `low` gives up: `low` would fit again at once."""
    engine = make_engine(num_blocks=6, max_num_seqs=2)
    engine.add(make_request("low", 18, 3, priority=9))
    engine.step()
    engine.add(make_request("u1", 3, 2, priority=0), make_request("u2", 3, 2, priority=0))
    engine.step()
    assert engine.plans[-1].preempted_request_ids == ("low",)
    assert set(engine.plans[-1].request_ids) == {"u1", "u2"}
    engine.run()
    assert engine.counters["preemptions"] == 1


def test_several_urgent_requests_take_several_places_in_one_step():
    engine = make_engine(num_blocks=40, max_num_seqs=4)
    engine.add(*[make_request(f"low{i}", 3, 9, priority=5) for i in range(4)])
    engine.step()
    engine.add(*[make_request(f"urgent{i}", 3, 2, priority=i) for i in range(3)])
    assert set(engine.step()) == {"low0", "urgent0", "urgent1", "urgent2"}
    assert engine.plans[-1].preempted_request_ids == ("low3", "low2", "low1")


def test_what_an_urgent_request_found_in_this_step_is_not_taken_from_it():
    """`low` fills and publishes a block in this step which `u1` finds; `u2` may then not push `low` out of the step."""
    engine = make_engine(num_blocks=40, max_num_seqs=2, max_num_batched_tokens=8, long_prefill_token_threshold=4)
    shared = range(500, 512)
    engine.add(make_request("low", [*shared, 1, 2, 3], 5, priority=9), make_request("low2", 12, 9, priority=8))
    engine.step()
    engine.add(make_request("u1", [*shared, 7], 2, priority=0), make_request("u2", 3, 9, priority=0))
    engine.run()
    for request in (make_request("low", [*shared, 1, 2, 3], 5), make_request("u1", [*shared, 7], 2)):
        assert engine.tokens[request.request_id] == alone(request)


def test_an_eviction_for_a_hit_that_goes_with_it_leaves_no_empty_step():
    """`urgent` has the prompt that `low` computes in this very step: evicting `low` takes the hit away."""
    engine = make_engine(num_blocks=4, max_num_batched_tokens=8, max_model_len=16)
    prompt = [*range(700, 715)]
    engine.add(make_request("low", prompt, 1, priority=9))
    engine.step()
    engine.add(make_request("urgent", prompt, 1, priority=0))
    engine.run()
    assert engine.tokens["low"] == engine.tokens["urgent"] == alone(make_request("x", prompt, 1))


def test_the_forecast_does_not_hold_up_who_could_evict():
    """At full conservativeness nothing more would be admitted beside `low`; `urgent` is, for `low` can yield later."""
    engine = make_engine(admission_conservativeness=1.0)
    engine.add(make_request("low", 4, 24, priority=9))
    engine.step()
    engine.add(make_request("equal", 4, 8, priority=9), make_request("urgent", 4, 8, priority=0))
    assert engine.step() == {"low": 1, "urgent": 4}


def test_where_shares_are_fair_tenants_do_not_evict_each_other():
    engine = make_engine(max_num_seqs=1, fair_share=True)
    engine.add(make_request("low", 3, 5, priority=9, tenant="a"))
    engine.step()
    engine.add(make_request("urgent", 3, 2, priority=0, tenant="b"))
    engine.run()
    assert list(engine.finished) == ["low", "urgent"]


@settings(max_examples=60)
@given(st.data())
def test_no_ping_pong(data):
    """Each fall is due to one more urgent request, or to a want of blocks; who is evicted has never evicted who
    evicted it, so falls are bounded by pairs of different priority and by blocks that fill."""
    count = data.draw(st.integers(2, 8))
    engine = make_engine(
        num_blocks=100, max_num_seqs=data.draw(st.integers(1, 3)), max_num_batched_tokens=data.draw(st.integers(4, 32))
    )
    requests = []
    for i in range(count):
        priority = data.draw(st.integers(0, 3))
        requests.append(
            make_request(f"r{i}", data.draw(st.integers(1, 20)), data.draw(st.integers(1, 9)), priority=priority)
        )
        engine.add(requests[-1])
        for _ in range(data.draw(st.integers(0, 3))):
            if engine.scheduler.has_work:
                engine.step()
    engine.run()
    for request in requests:
        above = sum(other.priority < request.priority for other in requests)
        assert engine.stats(request.request_id).num_preemptions <= above
        assert engine.tokens[request.request_id] == alone(request)
