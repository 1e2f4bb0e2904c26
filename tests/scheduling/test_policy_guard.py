"""A policy that raises at a request ends that request, whenever it does; the others get their tokens."""

import pytest

from octavo.scheduling.policy import SchedulingPolicy
from octavo.scheduling.preemption import last_admitted
from octavo.scheduling.scheduler import Scheduler
from tests.scheduling.harness import Engine, alone, make_request


def engine_with(policy: SchedulingPolicy, **fields: int) -> Engine:
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16, **fields)
    engine.scheduler = Scheduler(engine.config, engine.manager, 16, policy)
    return engine


def raises_when_preempted(request: object) -> tuple[int]:
    if request.stats.num_preemptions:  # type: ignore[attr-defined]
        raise KeyError("no such class of requests")
    return (request.arrival_index,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("ahead", [False, True])
def test_at_a_preempted_request(ahead: bool) -> None:
    policy = SchedulingPolicy(name="moody", sort_key=raises_when_preempted)
    engine = engine_with(policy, async_scheduling=ahead)
    requests = [make_request(name, 8, max_tokens=6) for name in "ab"]
    engine.add(*requests)
    engine.run()
    assert (engine.finished["a"], engine.finished["b"]) == ("length", "error")
    assert engine.tokens["a"] == alone(requests[0])
    assert engine.outputs["b"][-1].error == "the scheduling policy 'moody' raised KeyError at it"
    assert engine.manager.num_free_blocks == engine.manager.num_blocks


def test_in_the_urgency_of_a_running_request() -> None:
    def urgency(request: object) -> int:
        if request.num_output_tokens > 1:  # type: ignore[attr-defined]
            raise ZeroDivisionError
        return 0

    policy = SchedulingPolicy(name="moody", sort_key=lambda request: (request.arrival_index,), urgency=urgency)
    engine = engine_with(policy, max_num_seqs=1)
    engine.add(*[make_request(name, 4, max_tokens=6) for name in "abc"])
    engine.run()
    assert set(engine.finished.values()) == {"error", "length"}
    assert engine.finished["c"] == "length"  # nobody waits any more who would be compared with it


@pytest.mark.parametrize("choice", ["raises", "names a stranger"])
def test_a_rule_for_victims_that_cannot_choose(choice: str) -> None:
    def choose(candidates: object, manager: object) -> object:
        if choice == "raises":
            raise IndexError
        return "somebody"

    policy = SchedulingPolicy(
        name="moody",
        sort_key=lambda request: (request.arrival_index,),
        choose_victim=choose,  # type: ignore[arg-type]
    )
    engine = engine_with(policy)
    requests = [make_request(name, 8, max_tokens=6) for name in "ab"]
    engine.add(*requests)
    engine.run()
    assert [engine.tokens[name] for name in "ab"] == [alone(request) for request in requests]
    assert engine.counters["preemptions"] > 0
    assert last_admitted is not choose


def test_at_a_new_request_it_is_raised_before_anything_is_noted() -> None:
    def urgency(request: object) -> int:
        raise OverflowError

    policy = SchedulingPolicy(name="moody", sort_key=lambda request: (request.arrival_index,), urgency=urgency)
    engine = engine_with(policy)
    with pytest.raises(OverflowError):
        engine.add(make_request("a", 4))
    assert not engine.scheduler.has_work
