"""A fault of one request never leaves that request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.scheduling.plan import StepResult
from tests.scheduling.harness import Engine, alone, make_request


def failing(**at):
    """Faults: request id -> the number of tokens in its cache from which on its part fails."""
    return lambda request_id, computed: "NaN logits" if computed >= at.get(request_id, 10**9) else None


def test_a_failed_request_ends_with_an_error_and_the_others_go_on():
    engine = Engine(faults=failing(b=7))
    requests = [make_request(name, 5, max_tokens=6) for name in "abc"]
    engine.generate(*requests)
    assert engine.finished == {"a": "length", "b": "error", "c": "length"}
    last = engine.outputs["b"][-1]
    assert (last.error, last.error_status, last.new_token_ids) == ("NaN logits", 500, [])
    assert last.stats.num_output_tokens == 2 == len(engine.tokens["b"])
    assert last.stats.num_steps == 3
    for name in "ac":
        assert engine.tokens[name] == alone(make_request(name, 5, max_tokens=6))
    assert engine.counters["finished_error"] == 1
    assert engine.manager.num_free_blocks == engine.manager.num_blocks


def test_a_failed_chunk_ends_the_request_at_once():
    engine = Engine(faults=failing(a=16), max_num_batched_tokens=8)
    engine.generate(make_request("a", 30))
    assert len(engine.plans) == 2 and engine.finished == {"a": "error"}


def test_what_a_failed_part_wrote_cannot_be_found():
    engine = Engine(faults=failing(a=16), max_num_batched_tokens=8)
    engine.generate(make_request("a", range(30)))
    assert engine.manager.num_cached_blocks == 2  # the first chunk was sound
    engine.generate(make_request("b", range(30)))
    assert engine.stats("b").num_cached_tokens == 8
    assert engine.tokens["b"] == alone(make_request("b", range(30)))


def test_a_request_that_shared_the_failed_blocks_starts_anew_and_gets_its_tokens():
    engine = Engine(faults=failing(a=12), max_num_batched_tokens=64)
    requests = [make_request(name, range(length)) for name, length in (("a", 12), ("b", 21), ("c", 13))]
    bystander = make_request("d", 9)
    engine.add(*requests, bystander)
    assert engine.step() == {"a": 12, "b": 9, "c": 1, "d": 9}
    assert set(engine.outputs) == {"a", "d"}
    assert engine.num_running == 1 and engine.num_waiting == 2
    assert engine.manager.num_cached_blocks == 2  # those of the bystander
    engine.run()
    assert engine.plans[1].preempted_request_ids == ("b", "c")
    for request in (*requests[1:], bystander):
        assert engine.tokens[request.request_id] == alone(request)
        assert engine.finished[request.request_id] == "length"
    assert engine.stats("b").num_preemptions == 1 and engine.stats("d").num_preemptions == 0


@pytest.mark.parametrize("ahead", [False, True])
def test_requests_that_fail_because_of_what_they_read_start_anew(ahead):
    """The first request fails by itself. Those that go on from its prompt find garbage, and fail, too, where that is no
    number: in the executor's account all look alike."""
    engine = Engine(faults=failing(a=8), max_num_batched_tokens=64, async_scheduling=ahead)
    requests = [make_request("a", range(8)), *[make_request(f"r{i}", [*range(8), 50 + i], seed=i) for i in range(7)]]
    engine.add(*requests)
    result = engine.executor.execute(plan := engine.plan())
    assert 2 < len(result.errors) < 8 and "a" in result.errors
    outputs = engine.scheduler.update(plan, result, 0.0)
    assert [(output.request_id, output.error) for output in outputs] == [("a", "NaN logits")]
    engine.manager.check()
    engine.run()
    for request in requests[1:]:
        assert engine.tokens[request.request_id] == alone(request)
    assert engine.counters["finished_error"] == 1


def test_a_request_that_shares_only_sound_blocks_of_a_failed_one_is_untouched():
    engine = Engine(faults=failing(a=13))
    engine.add(make_request("a", range(12), max_tokens=9), make_request("b", [*range(12), 70], max_tokens=9))
    engine.run()
    assert engine.finished["a"] == "error"
    assert engine.stats("b").num_preemptions == 0
    assert engine.tokens["b"] == alone(make_request("b", [*range(12), 70], max_tokens=9))


def test_a_fault_of_an_aborted_request_still_unpublishes_its_blocks():
    engine = Engine(faults=failing(a=12))
    engine.add(make_request("a", range(12)), make_request("b", range(14)))
    plan = engine.plan()
    engine.scheduler.abort("a")
    assert engine.finish(plan) == []
    assert engine.manager.num_cached_blocks == 0
    engine.run()
    assert engine.tokens["b"] == alone(make_request("b", range(14)))


def test_all_requests_of_a_step_may_fail():
    engine = Engine(faults=lambda request_id, computed: f"{request_id} broke")
    engine.generate(*[make_request(name, range(9)) for name in "abc"])
    assert [engine.outputs[name][-1].error for name in "abc"] == ["a broke", "b broke", "c broke"]
    assert engine.manager.num_cached_blocks == 0
    assert engine.manager.num_free_blocks == engine.manager.num_blocks


def test_a_request_failing_on_every_try_does_not_stop_those_that_share_its_prompt():
    engine = Engine(faults=failing(a=1, b=1), max_num_seqs=3)
    engine.generate(*[make_request(name, range(9)) for name in "abcd"])
    assert engine.finished == {"a": "error", "b": "error", "c": "length", "d": "length"}


def test_errors_of_requests_outside_the_step_break_the_contract():
    engine = Engine()
    engine.add(make_request("a", 3))
    plan = engine.plan()
    with pytest.raises(RuntimeError, match="not in the step"):
        engine.scheduler.update(plan, StepResult(step=0, token_ids=((1,),), errors={"x": "?"}), 0.0)


@settings(max_examples=40)
@given(st.data())
def test_whatever_fails_the_others_get_their_tokens(data):
    names = [f"r{i}" for i in range(data.draw(st.integers(2, 7)))]
    at = {name: data.draw(st.integers(1, 40)) for name in names if data.draw(st.booleans())}
    requests = [
        make_request(name, range(data.draw(st.integers(1, 24))), data.draw(st.integers(1, 8)), priority=i % 2)
        for i, name in enumerate(names)
    ]
    engine = Engine(
        faults=failing(**at),
        num_blocks=data.draw(st.integers(8, 24)),
        max_model_len=32,
        max_num_batched_tokens=data.draw(st.integers(2, 64)),
        scheduling_policy=data.draw(st.sampled_from(["fcfs", "priority"])),
    )
    for request in requests:
        engine.add(request)
        if data.draw(st.booleans()):
            engine.step()
    engine.run()
    for request in requests:
        expected = alone(request, 32)
        last_computed = len(request.prompt_token_ids) + len(expected) - 1
        if at.get(request.request_id, 10**9) <= last_computed:
            assert engine.finished[request.request_id] == "error"
            got = engine.tokens[request.request_id]
            assert got == expected[: len(got)]
        else:
            assert engine.tokens[request.request_id] == expected
    assert engine.manager.num_free_blocks == engine.manager.num_blocks
