"""Bounded bypass: who does not fit is stepped over for a while, then holds the line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.harness import Engine, make_request


def wedged(max_bypasses, *, smalls=8, **options):
    """`a` holds 2 of 8 blocks for long, `big` needs all 8, and small ones arrive behind it."""
    engine = Engine(num_blocks=8, max_model_len=32, max_bypasses=max_bypasses, **options)
    engine.add(make_request("a", 5, max_tokens=20))
    engine.step()
    engine.add(make_request("big", 31, max_tokens=1))
    engine.add(*[make_request(f"s{i}", 2, max_tokens=1) for i in range(smalls)])
    return engine


def admitted(engine):
    return [new.request_id for plan in engine.plans for new in plan.new_requests]


def test_a_waiting_request_that_does_not_fit_is_stepped_over():
    engine = wedged(16)
    assert set(engine.step()) == {"a", *[f"s{i}" for i in range(6)]}


@pytest.mark.parametrize("most", [0, 1, 3, 5])
def test_it_is_overtaken_a_bounded_number_of_times_then_holds_the_line(most):
    engine = wedged(most)
    engine.run()
    order = admitted(engine)
    assert order.index("big") == 1 + most
    assert len(engine.finished) == 10


def test_a_request_that_came_first_is_not_overtaken_when_it_fits():
    engine = Engine(num_blocks=8, max_model_len=32, max_bypasses=16)
    engine.add(*[make_request(name, 6, max_tokens=1) for name in "abc"])
    engine.run()
    assert admitted(engine) == ["a", "b", "c"]


def test_a_preempted_request_is_never_stepped_over():
    """It needs more than is free; the small newcomers would fit, and take what it waits for."""
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16, max_bypasses=16)
    engine.add(make_request("a", 8, max_tokens=8), make_request("b", 8, max_tokens=8))
    engine.step()
    engine.add(make_request("small", 1, max_tokens=1))
    while "a" not in engine.finished:
        engine.step()
    assert admitted(engine) == ["a", "b"]
    engine.run()
    assert admitted(engine) == ["a", "b", "b", "small"]


def test_one_step_looks_past_a_bounded_number_of_requests():
    engine = wedged(1000, smalls=0)
    engine.add(*[make_request(f"big{i}", 31, max_tokens=1) for i in range(50)], make_request("small", 2, max_tokens=1))
    looked_up = []
    match = engine.manager.match
    engine.manager.match = lambda held: looked_up.append(held) or match(held)
    assert engine.step() == {"a": 1}
    assert len(looked_up) == 5


def test_running_places_that_are_full_count_as_no_bypass():
    engine = Engine(max_num_seqs=1, max_bypasses=2)
    engine.add(*[make_request(f"r{i}", 3, max_tokens=2) for i in range(4)])
    for _ in range(3):
        engine.step()
    assert all(request.num_bypassed == 0 for request in engine.scheduler._waiting)
    engine.run()
    assert admitted(engine) == ["r0", "r1", "r2", "r3"]


@settings(max_examples=40)
@given(st.data())
def test_nobody_is_overtaken_more_often_than_allowed(data):
    """Under FCFS: for each request, those that arrived later and were admitted earlier."""
    most = data.draw(st.integers(0, 4))
    engine = Engine(
        num_blocks=data.draw(st.integers(10, 16)),
        max_model_len=40,
        max_bypasses=most,
        admission_conservativeness=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        max_num_seqs=data.draw(st.integers(1, 6)),
    )
    names = [f"r{i}" for i in range(data.draw(st.integers(2, 14)))]
    for name in names:
        engine.add(make_request(name, data.draw(st.integers(1, 30)), data.draw(st.integers(1, 9))))
        if data.draw(st.booleans()):
            engine.step()
    engine.run()
    order = list(dict.fromkeys(admitted(engine)))
    for name in names:
        before = order[: order.index(name)]
        assert sum(names.index(other) > names.index(name) for other in before) <= most
