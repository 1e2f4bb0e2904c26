"""Abort works in every state, is idempotent, and frees what the request held before the next step is planned."""

import pytest

from tests.scheduling.harness import Engine, alone, make_request


def all_free(engine):
    engine.manager.check()
    return engine.manager.num_free_blocks == engine.manager.num_blocks


def test_a_waiting_request():
    engine = Engine(max_num_seqs=1)
    engine.add(make_request("a", 3, max_tokens=2), make_request("b", 3))
    engine.step()
    assert engine.scheduler.abort("b") is True
    engine.run()
    assert set(engine.finished) == {"a"}
    assert all("b" not in plan.finished_request_ids for plan in engine.plans)  # no runner ever heard of it


def test_a_running_request():
    engine = Engine()
    engine.add(make_request("a", 6, max_tokens=9), make_request("b", 3, max_tokens=9))
    engine.step()
    assert engine.scheduler.abort("a") is True
    assert engine.step() == {"b": 1}
    assert engine.plans[-1].finished_request_ids == ("a",)
    assert engine.executor.held_request_ids == {"b"}


def test_a_request_in_the_middle_of_its_prompt():
    engine = Engine(max_num_batched_tokens=8)
    engine.add(make_request("a", 30))
    engine.step()
    engine.scheduler.abort("a")
    assert not engine.scheduler.has_work and all_free(engine)


def test_a_preempted_request():
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16)
    engine.add(make_request("a", 8, max_tokens=6), make_request("b", 8, max_tokens=6))
    engine.step()
    engine.step()
    assert engine.plans[-1].preempted_request_ids == ("b",)
    assert engine.scheduler.abort("b") is True
    engine.run()
    assert set(engine.finished) == {"a"} and all_free(engine)
    assert [plan.finished_request_ids for plan in engine.plans] == [()] * len(engine.plans)


def test_a_request_whose_step_is_in_flight():
    """What the step brings for it is dropped without error; its blocks are free at once."""
    engine = Engine()
    engine.add(make_request("a", 6, max_tokens=9), make_request("b", 3, max_tokens=3))
    plan = engine.plan()
    assert engine.scheduler.abort("a") is True
    assert engine.manager.num_free_blocks == engine.manager.num_blocks - 1
    assert [output.request_id for output in engine.finish(plan)] == ["b"]
    engine.run()
    assert engine.tokens["b"] == alone(make_request("b", 3, max_tokens=3))
    assert "a" not in engine.tokens and all_free(engine)


def test_all_requests_of_a_step_in_flight():
    engine = Engine()
    engine.add(make_request("a", 6))
    plan = engine.plan()
    engine.scheduler.abort("a")
    assert not engine.scheduler.has_work
    assert engine.finish(plan) == []
    assert all_free(engine) and engine.scheduler.schedule(0.0) is None


def test_an_id_reused_while_the_step_of_its_predecessor_is_in_flight():
    """The result belongs to the predecessor."""
    engine = Engine()
    engine.add(make_request("a", 6, max_tokens=3))
    plan = engine.plan()
    engine.scheduler.abort("a")
    engine.add(make_request("a", 9, max_tokens=3))
    assert engine.finish(plan) == []
    engine.run()
    assert engine.tokens["a"] == alone(make_request("a", 9, max_tokens=3))


def test_unknown_and_finished_ids_are_ignored():
    engine = Engine()
    assert engine.scheduler.abort("nobody") is False
    engine.generate(make_request("a", 3, max_tokens=1))
    assert engine.scheduler.abort("a") is False


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_abort_is_idempotent(steps):
    engine = Engine()
    engine.add(make_request("a", 3, max_tokens=9), make_request("b", 3, max_tokens=9))
    for _ in range(steps):
        engine.step()
    assert [engine.scheduler.abort("a") for _ in range(3)] == [True, False, False]
    engine.run()
    reported = [request_id for plan in engine.plans for request_id in plan.finished_request_ids]
    assert reported.count("a") == (steps > 0)
    assert engine.counters["finished_abort"] == 1


def test_blocks_of_an_aborted_request_serve_the_very_next_step():
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16)
    engine.add(make_request("a", 13, max_tokens=2), make_request("b", 13, max_tokens=2))
    assert engine.step() == {"a": 13}
    engine.scheduler.abort("a")
    assert engine.step() == {"b": 13}


def test_what_an_aborted_request_computed_can_be_found():
    engine = Engine()
    engine.add(make_request("a", range(10), max_tokens=9))
    engine.step()
    engine.scheduler.abort("a")
    engine.generate(make_request("b", range(10), max_tokens=2))
    assert engine.stats("b").num_cached_tokens == 8


def test_siblings_are_unaffected():
    engine = Engine(num_blocks=8, block_size=4, max_model_len=32)
    siblings = [make_request(f"s{i}", range(9), max_tokens=5, seed=i) for i in range(4)]
    engine.add(*siblings)
    engine.step()
    engine.scheduler.abort("s1")
    engine.run()
    for sibling in (siblings[0], *siblings[2:]):
        assert engine.tokens[sibling.request_id] == alone(sibling)


def test_aborts_behind_a_stuck_head_do_not_pile_up():
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16, max_num_queued_reqs=10)
    engine.add(make_request("a", 8, max_tokens=8))
    engine.step()
    engine.add(make_request("stuck", 15, max_tokens=1))
    for i in range(2000):
        engine.add(make_request(f"r{i}", 1))
        engine.scheduler.abort(f"r{i}")
    assert engine.num_waiting == 1
    assert engine.num_queue_entries < 100
    engine.run()
    assert set(engine.finished) == {"a", "stuck"}
