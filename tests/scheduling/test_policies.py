"""Policies and the waiting queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError, QueueFullError
from octavo.kv.manager import KVManager
from octavo.scheduling.policy import POLICIES, policy_named
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import SchedulerRequest
from octavo.scheduling.tenants import Tenants
from tests.scheduling.harness import Engine, make_layout, make_request


def state(index, priority=0, arrival_s=0.0, name=None):
    request = make_request(name or f"r{index}", 3, priority=priority)
    blocks = KVManager(make_layout(4)).open(request.prompt_token_ids)
    return SchedulerRequest(
        request,
        list(request.prompt_token_ids),
        blocks,
        arrival_index=index,
        arrival_s=arrival_s,
        max_model_len=64,
    )


def policy(name):
    return policy_named(SchedulerConfig(scheduling_policy=name))


def make_queue(max_length):
    return WaitingQueue(policy("fcfs"), max_length, Tenants(SchedulerConfig()))


@pytest.mark.parametrize("name", ["max_num_batched_tokens", "max_num_seqs"])
def test_a_step_without_a_size_is_refused_at_start(name):
    with pytest.raises(ConfigError, match=f"{name}=0: the size of a step must be known here"):
        Engine(**{name: 0})


def test_an_unknown_policy_is_refused_at_start_with_the_known_ones():
    with pytest.raises(ConfigError, match="scheduling_policy='lottery': known policies are fcfs, prefix, priority"):
        Engine(scheduling_policy="lottery")


def test_the_registry_names_its_policies():
    assert {name: policy(name).name for name in POLICIES} == {name: name for name in ("fcfs", "priority", "prefix")}


def test_fcfs_ignores_priorities():
    engine = Engine(max_num_seqs=1)
    engine.add(*[make_request(f"r{i}", 2, max_tokens=1, priority=-i) for i in range(4)])
    engine.run()
    assert list(engine.finished) == ["r0", "r1", "r2", "r3"]


def test_priority_admits_by_priority_then_arrival_then_id():
    engine = Engine(max_num_seqs=1, scheduling_policy="priority")
    engine.add(
        make_request("z", 2, max_tokens=1, priority=1, arrival_s=5.0),
        make_request("y", 2, max_tokens=1, priority=1, arrival_s=5.0),
        make_request("x", 2, max_tokens=1, priority=1, arrival_s=4.0),
        make_request("w", 2, max_tokens=1, priority=0, arrival_s=9.0),
    )
    engine.run()
    assert list(engine.finished) == ["w", "x", "y", "z"]


def test_a_queue_at_its_bound_refuses_arrivals_but_not_preempted_requests():
    queue = make_queue(1)
    first, second = state(1), state(0)
    queue.check_room(0.0)
    queue.add(first)
    with pytest.raises(QueueFullError):
        queue.check_room(0.0)
    queue.add(second)
    assert list(queue) == [second, first] and queue.head() is second


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "pop", "aside", "restore"]), st.integers(0, 30)), max_size=200)
)
def test_the_queue_behaves_like_a_sorted_list(operations):
    requests = [state(i) for i in range(31)]
    queue, plain, aside = make_queue(1000), [], []
    for operation, index in operations:
        request = requests[index]
        if operation == "add" and request not in plain + aside:
            queue.add(request)
            plain.append(request)
        elif operation == "remove" and request in plain:
            queue.remove(request)
            plain.remove(request)
        elif operation == "pop" and plain:
            queue.start(plain.pop(0), 0.0)
        elif operation == "aside" and plain:
            queue.set_aside(plain[0])
            aside.append(plain.pop(0))
        elif operation == "restore":
            queue.restore()
            plain, aside = plain + aside, []
        plain.sort(key=lambda r: r.arrival_index)
        assert list(queue) == plain and len(queue) == len(plain) + len(aside)
        assert queue.head() is (plain[0] if plain else None)
