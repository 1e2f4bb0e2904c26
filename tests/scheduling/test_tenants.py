"""Fairness across tenants: a limit per key, and shares by weight."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError
from octavo.kv.manager import KVManager
from octavo.scheduling.lanes import Lanes
from octavo.scheduling.request_state import SchedulerRequest
from octavo.scheduling.tenants import Tenants, parse_weights
from tests.scheduling.harness import Engine, alone, make_layout, make_request


def tenants_of(plan):
    return [request_id[0] for request_id in plan.request_ids]


def add_many(engine, tenant, count, *, prompt=4, max_tokens=4, **options):
    for i in range(count):
        engine.add(make_request(f"{tenant}{i}", prompt, max_tokens, tenant=tenant, **options))


# ---- max_running_per_key


def test_nobody_runs_more_requests_than_a_key_may():
    engine = Engine(max_running_per_key=2)
    add_many(engine, "a", 5)
    add_many(engine, "b", 3)
    engine.step()
    assert tenants_of(engine.plans[0]) == ["a", "a", "b", "b"]
    engine.run()
    assert all(tenants_of(plan).count(tenant) <= 2 for plan in engine.plans for tenant in "ab")
    assert len(engine.finished) == 8


def test_waiting_behind_the_limit_of_ones_own_key_is_not_being_overtaken():
    """Those at their limit are not in line, so they use up no bypasses and hold up nobody."""
    engine = Engine(max_running_per_key=1, max_bypasses=0)
    add_many(engine, "a", 3, max_tokens=8)
    add_many(engine, "b", 1)
    assert engine.step() == {"a0": 4, "b0": 4}
    assert all(request.num_bypassed == 0 for request in engine.scheduler._waiting)


@pytest.mark.parametrize("policy", ["fcfs", "priority", "prefix"])
def test_the_limit_goes_with_each_policy(policy):
    engine = Engine(max_running_per_key=1, scheduling_policy=policy)
    for i in range(4):
        engine.add(make_request(f"a{i}", 4, 3, tenant="a", priority=4 - i))
        engine.add(make_request(f"b{i}", 4, 3, tenant="b", priority=4 - i))
    engine.run()
    assert all(sorted(tenants_of(plan)) in (["a", "b"], ["a"], ["b"]) for plan in engine.plans)
    first_of_a = [n.request_id for plan in engine.plans for n in plan.new_requests if n.request_id[0] == "a"]
    assert first_of_a == (["a3", "a2", "a1", "a0"] if policy == "priority" else ["a0", "a1", "a2", "a3"])


# ---- fair shares


def served(engine, tenant):
    return sum(
        count
        for plan in engine.plans
        for request_id, count in zip(plan.request_ids, plan.num_scheduled_tokens, strict=True)
        if request_id[0] == tenant
    )


def test_a_tenant_with_few_requests_does_not_wait_behind_one_with_many():
    engine = Engine(max_num_seqs=2, fair_share=True)
    add_many(engine, "a", 20)
    add_many(engine, "b", 2)
    engine.run()
    ends = list(engine.finished)
    assert ends.index("b1") < 6


@pytest.mark.parametrize("policy", ["fcfs", "priority", "prefix"])
@pytest.mark.parametrize(("weights", "share"), [((), 0.5), (("a=3",), 0.75), (("a=1", "b=4"), 0.2)])
def test_work_is_divided_by_weight_while_both_have_requests(policy, weights, share):
    engine = Engine(
        max_num_seqs=4, fair_share=True, fair_weights=weights, scheduling_policy=policy, max_num_queued_reqs=1000
    )
    add_many(engine, "a", 150, prompt=9, max_tokens=3)
    add_many(engine, "b", 150, prompt=3, max_tokens=7)
    for _ in range(200):
        engine.step()
    done = served(engine, "a") / (served(engine, "a") + served(engine, "b"))
    assert abs(done - share) < 0.04
    assert all(any(name in plan.request_ids[0] for plan in engine.plans) for name in "ab")


def test_within_a_tenant_the_policy_decides():
    engine = Engine(max_num_seqs=1, fair_share=True, scheduling_policy="priority")
    engine.add(
        make_request("a0", 4, 2, tenant="a", priority=5),
        make_request("a1", 4, 2, tenant="a", priority=1),
        make_request("b0", 4, 2, tenant="b", priority=9),
    )
    engine.run()
    assert list(engine.finished) == ["a1", "b0", "a0"]


def test_nobody_saves_up_while_away():
    """`b` comes when `a` has had much; it starts where `a` stands and gets half from then on, not all."""
    engine = Engine(max_num_seqs=2, fair_share=True, max_num_queued_reqs=1000)
    add_many(engine, "a", 100)
    for _ in range(60):
        engine.step()
    before, steps = served(engine, "a"), len(engine.plans)
    add_many(engine, "b", 100)
    for _ in range(60):
        engine.step()
    assert served(engine, "b") / (served(engine, "a") - before + served(engine, "b")) == pytest.approx(0.5, abs=0.05)
    assert len(engine.plans) == steps + 60


def test_who_had_more_than_its_share_does_not_shake_it_off_by_leaving():
    tenants = Tenants(SchedulerConfig(fair_share=True))
    for name in "ab":
        tenants.arrived(name)
        tenants.charge(name, 10)
    tenants.charge("b", 100)
    before = tenants.rank("b")
    assert before >= tenants.rank("a") + 100
    tenants.ended("b")
    tenants.arrived("b")
    assert tenants.rank("b") == before


def test_tenants_that_are_gone_are_forgotten():
    tenants = Tenants(SchedulerConfig(fair_share=True))
    tenants.arrived("stays")
    tenants.charge("stays", 10_000)
    for i in range(10_000):
        tenants.arrived(f"t{i}")
        tenants.charge(f"t{i}", 1)
        tenants.ended(f"t{i}")
        tenants.charge("stays", 2)
        tenants.started("stays")
        tenants.stopped("stays")
    assert len(tenants._service) < 200
    tenants.ended("stays")
    assert not tenants._service


def test_of_tenants_that_come_once_a_bounded_number_is_remembered():
    """Virtual time stands still for them, so each of them leaves with a lead. The largest leads are kept."""
    tenants = Tenants(SchedulerConfig(fair_share=True))
    tenants.arrived("stays")
    for i in range(20_000):
        tenants.arrived(f"t{i}")
        tenants.started(f"t{i}")
        tenants.charge(f"t{i}", 1000 if i == 7 else 10)
        tenants.stopped(f"t{i}")
        tenants.ended(f"t{i}")
        assert len(tenants._service) < 2200
    assert tenants.rank("t7") == 1000


def test_without_fairness_nobody_is_told_apart():
    tenants = Tenants(SchedulerConfig())
    assert tenants.lane_of(make_request("a", 3, tenant="x")) == tenants.lane_of(make_request("b", 3, tenant="y"))


@pytest.mark.parametrize("text", ["", "a", "a=", "=2", "a=0", "a=-1", "a=nan", "a=inf", "a=x"])
def test_a_weight_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=r"fair_weights=.*: must be TENANT=WEIGHT"):
        parse_weights([text])


def test_weights_without_fair_shares_are_refused():
    with pytest.raises(ConfigError, match=r"fair_weights=.*have no effect without fair_share"):
        SchedulerConfig(fair_weights=("a=2",))


OPERATIONS = st.sampled_from(["push", "remove", "take", "serve", "begin", "end"])


@given(st.lists(st.tuples(OPERATIONS, st.integers(0, 39)), max_size=150), st.integers(0, 2))
def test_the_next_lane_is_the_one_that_a_look_at_all_of_them_finds(operations, limit):
    """Against the minimum over all lanes, with heads that come and go, ranks that grow and tenants at their limit."""
    tenants = Tenants(SchedulerConfig(fair_share=True, max_running_per_key=limit))
    lanes = Lanes(lambda request: (request.num_hit_tokens, request.arrival_index), tenants)
    manager = KVManager(make_layout(4))
    requests = [
        SchedulerRequest(
            make_request(f"r{i}", 3, tenant=str(i % 5)),
            [1],
            manager.open([1]),
            arrival_index=i,
            arrival_s=0,
            max_model_len=9,
        )
        for i in range(40)
    ]
    for request in requests:
        request.num_hit_tokens = 7 * request.arrival_index % 11
        tenants.arrived(request.request.tenant)
    waiting = set()
    for operation, index in operations:
        request = requests[index]
        tenant = request.request.tenant
        if operation == "push":
            request.num_hit_tokens = (request.num_hit_tokens * 5 + index) % 13
            lanes.push(request)
            waiting.add(request)
        elif operation == "remove" and request in waiting:
            lanes.remove(request)
            waiting.remove(request)
        elif operation == "take" and lanes.next() is not None:
            head = lanes.next().head()
            lanes.remove(head)
            waiting.remove(head)
        elif operation == "serve":
            tenants.charge(tenant, index + 1)
        elif operation == "begin":
            tenants.started(tenant)
        elif operation == "end" and tenants.num_running().get(tenant):
            tenants.stopped(tenant)
        eligible = [other for other in waiting if tenants.may_start(other.request.tenant)]
        best = min(
            eligible,
            key=lambda r: (tenants.rank(r.request.tenant), r.num_hit_tokens, r.arrival_index),
            default=None,
        )
        lane = lanes.next()
        assert (None if lane is None else lane.head()) is best
    assert len(lanes._heap) <= 2 * 5 + 64


@settings(max_examples=30)
@given(st.data())
def test_tokens_do_not_depend_on_fairness(data):
    requests = [
        make_request(
            f"r{i}",
            data.draw(st.integers(1, 20)),
            data.draw(st.integers(1, 12)),
            tenant=data.draw(st.sampled_from("xyz")),
            priority=i % 3,
        )
        for i in range(data.draw(st.integers(2, 8)))
    ]
    engine = Engine(
        num_blocks=data.draw(st.integers(10, 16)),
        max_model_len=40,
        scheduling_policy=data.draw(st.sampled_from(["fcfs", "priority", "prefix"])),
        fair_share=data.draw(st.booleans()),
        max_running_per_key=data.draw(st.integers(0, 2)),
        max_num_batched_tokens=data.draw(st.integers(3, 40)),
    )
    assert engine.generate(*requests) == [alone(request, 40) for request in requests]
