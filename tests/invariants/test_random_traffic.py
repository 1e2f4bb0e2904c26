"""Random traffic through the real scheduler and the scripted executor, with all laws checked after every step.

The engine of the harness verifies conservation after each schedule and each update; the scripted executor verifies
every plan, every budget and every read of the KV memory. What is left to assert here is what only the whole run shows:
order, liveness, the same tokens as alone, and that nothing is left behind.
"""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec
from octavo.request.pooling import PoolingParams
from octavo.request.request import GenerateRequest
from tests.effort import times
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_layout, make_request

CONTEXT = 40
NARROW = AttentionSpec(num_kv_heads=1, head_dim=4, window=3)
CHUNKED = AttentionSpec(num_kv_heads=1, head_dim=4, chunk=6)
GROUPS = [(FULL,), (FULL, WINDOWED), (FULL, WINDOWED, WINDOWED), (WINDOWED,), (NARROW, FULL, CHUNKED), (CHUNKED,)]


def blocks_for_one(options) -> int:
    """Usable blocks that hold one full-length request."""
    layout = make_layout(1, block_size=options["block_size"], layers=options["layers"])
    return layout.blocks_per_request(CONTEXT - 1, options["max_num_batched_tokens"])


engine_options = st.fixed_dictionaries(
    {
        "layers": st.sampled_from(GROUPS),
        "block_size": st.sampled_from([1, 2, 4, 8]),
        "spare_blocks": st.integers(0, 30),
        "caching": st.sampled_from([True, True, True, False]),
        "sub_block_match": st.booleans(),
        "max_num_seqs": st.integers(1, 8),
        "max_num_batched_tokens": st.integers(1, 64),
        "long_prefill_token_threshold": st.sampled_from([0, 0, 1, 3, 8]),
        "watermark": st.sampled_from([0.0, 0.0, 0.1, 0.5]),
        "scheduling_policy": st.sampled_from(["fcfs", "priority", "prefix"]),
        "priority_eviction": st.booleans(),
        "preemption_victim": st.sampled_from(["auto", "last", "least_urgent", "cheapest"]),
        "admission_conservativeness": st.sampled_from([0.0, 0.0, 0.3, 0.7, 1.0]),
        "max_bypasses": st.sampled_from([0, 1, 16]),
        "max_running_per_key": st.sampled_from([0, 0, 1, 2]),
        "fair_share": st.booleans(),
    }
)


STRICT = {
    "scheduling_policy": "fcfs",
    "preemption_victim": "last",
    "admission_conservativeness": 0.0,
    "max_bypasses": 0,
    "max_running_per_key": 0,
    "fair_share": False,
}
"""Order of arrival and nothing else."""


def make_engine(options) -> Engine:
    options = dict(options)
    spare = options.pop("spare_blocks")
    num_blocks = blocks_for_one(options) + spare
    return Engine(num_blocks=num_blocks, max_model_len=CONTEXT, **options)


@st.composite
def requests(draw, name) -> GenerateRequest:
    """Prompts over few tokens with long common parts, so that hits, twins and shared blocks are frequent."""
    shared = draw(st.integers(0, 30))
    own = draw(st.lists(st.integers(0, 1), min_size=0 if shared else 1, max_size=6))
    greedy_length = draw(st.integers(1, 14))
    return make_request(
        name,
        [*range(shared), *own],
        greedy_length,
        seed=draw(st.integers(0, 1)),
        priority=draw(st.integers(0, 2)),
        tenant=draw(st.sampled_from("xyz")),
        cache_salt=draw(st.sampled_from([None, None, "salt"])),
        eos=draw(st.sampled_from([(), tuple(range(0, 1000, 7))])),
        prompt_logprobs=draw(st.sampled_from([None, None, None, 0])),
        pooling=draw(st.sampled_from([None, None, None, PoolingParams(), PoolingParams(pooling="mean")])),
    )


def check_tenants(engine):
    """Nobody runs more than allowed, and who runs is counted right."""
    running = Counter(request.request.tenant for request in engine.scheduler._running)
    assert engine.scheduler._tenants.num_running() == running
    limit = engine.config.max_running_per_key
    assert not limit or not running or max(running.values()) <= limit


def check_nothing_is_kept(engine):
    """After the last request the scheduler holds nothing of anybody."""
    scheduler = engine.scheduler
    assert not scheduler.has_work and engine.num_queue_entries == 0
    assert not scheduler._tenants.num_running() and not scheduler._tenants._service
    assert scheduler._admission._outlook is None
    hits = scheduler._waiting._hits
    assert hits is None or not (hits._filed or hits._name_of)


def check_that_all_finish(engine: Engine, data) -> None:
    """Some requests at one time get what each gets alone, in a bounded number of steps."""
    wanted = [data.draw(requests(f"r{i}")) for i in range(data.draw(st.integers(1, 8)))]
    engine.add(*wanted)
    engine.run(max_steps=5000)
    assert [engine.tokens[request.request_id] for request in wanted] == [alone(request, CONTEXT) for request in wanted]


class TrafficRules(RuleBasedStateMachine):
    """What is the same however steps are taken: arrivals, aborts, cache resets, and what holds meanwhile and at the
    end."""

    def open(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: dict[str, GenerateRequest] = {}
        self.aborted: set[str] = set()

    def add(self, data) -> GenerateRequest:
        request = data.draw(requests(f"r{len(self.requests)}"))
        self.requests[request.request_id] = request
        self.engine.add(request)
        return request

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        name = data.draw(st.sampled_from(sorted(self.requests)))
        was_live = name not in self.engine.finished and name not in self.aborted
        assert self.engine.scheduler.abort(name) == was_live
        if was_live:
            self.aborted.add(name)

    @rule()
    def reset_prefix_cache(self):
        idle = self.engine.manager.num_free_blocks == self.engine.manager.num_blocks
        assert self.engine.scheduler.reset_prefix_cache() == idle
        self.engine.manager.check()

    @invariant()
    def everybody_is_somewhere(self):
        if not hasattr(self, "engine"):
            return
        live = set(self.requests) - set(self.engine.finished) - self.aborted
        load = self.engine.scheduler.load()
        assert load.num_running + load.num_waiting == len(live)
        assert load.num_running <= self.engine.config.max_num_seqs
        check_tenants(self.engine)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        engine.run(max_steps=3000)
        check_nothing_is_kept(engine)
        assert engine.manager.num_free_blocks == engine.manager.num_blocks
        assert set(engine.finished) | self.aborted == set(self.requests)
        assert not set(engine.finished) & self.aborted
        self.check_ends()

    def check_ends(self) -> None:
        """Everybody got what it gets alone, up to where it was aborted."""
        raise NotImplementedError


class Traffic(TrafficRules):
    """Whole steps, with aborts before and during one, in any order."""

    @initialize(options=engine_options)
    def start(self, options):
        self.open(make_engine(options))

    @rule(data=st.data())
    def arrive(self, data):
        self.add(data)

    @rule(count=st.integers(1, 5))
    def step(self, count):
        for _ in range(count):
            if self.engine.scheduler.has_work:
                self.engine.step()

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data())
    def abort_in_flight(self, data):
        plan = self.engine.plan()
        self.abort(data)
        self.engine.finish(plan)

    def check_ends(self) -> None:
        for name, request in self.requests.items():
            expected = alone(request, CONTEXT)
            got = self.engine.tokens[name]
            assert got == expected[: len(got)] if name in self.aborted else got == expected


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=times(50), stateful_step_count=25)


@pytest.mark.slow
class TestMuchTraffic(Traffic.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(60), stateful_step_count=60)


@settings(max_examples=40)
@given(engine_options, st.data())
def test_any_finite_set_of_requests_finishes_in_a_pool_for_one(options, data):
    """Liveness with the tightest pool there may be: nothing to spare."""
    check_that_all_finish(make_engine({**options, "spare_blocks": 0}), data)


@settings(max_examples=40)
@given(engine_options, st.data())
def test_order(options, data):
    """Who is admitted for the first time follows the policy; who runs is planned in the order of admission; what
    runs does not overtake under FCFS: at any time the requests in the running set arrived before all that wait."""
    engine = make_engine({**options, **STRICT})
    names = [f"r{i}" for i in range(data.draw(st.integers(2, 10)))]
    for name in names:
        engine.add(data.draw(requests(name)))
        if data.draw(st.booleans()) and engine.scheduler.has_work:
            engine.step()
    engine.run(max_steps=5000)
    first_seen = dict.fromkeys(new.request_id for plan in engine.plans for new in plan.new_requests)
    assert list(first_seen) == names
    for plan in engine.plans:
        assert list(plan.request_ids) == sorted(plan.request_ids, key=names.index)
        assert not (plan.preempted_request_ids and plan.new_requests)
        assert list(plan.preempted_request_ids) == sorted(plan.preempted_request_ids, key=names.index, reverse=True)


@settings(max_examples=40)
@given(engine_options, st.data())
def test_a_plan_leaves_budget_unused_only_for_a_reason(options, data):
    """Budget is left only if every running request is caught up or capped, and the queue is empty, the running set
    full, something was preempted, or the head of the queue does not fit."""
    engine = make_engine({**options, **STRICT, "long_prefill_token_threshold": 0, "watermark": 0.0})
    engine.add(*[data.draw(requests(f"r{i}")) for i in range(data.draw(st.integers(1, 8)))])
    while engine.scheduler.has_work:
        plan = engine.plan()
        waiting = list(engine.scheduler._waiting)
        if plan.num_tokens < engine.config.max_num_batched_tokens and not plan.preempted_request_ids and waiting:
            head = waiting[0]
            needed = engine.manager.num_blocks_needed(engine.manager.match(head.blocks), len(head.token_ids))
            is_full = engine.num_running == engine.config.max_num_seqs
            assert is_full or needed > engine.manager.num_free_blocks
        engine.finish(plan)


def test_nothing_leaks_over_a_thousand_random_aborts():
    rng = random.Random(7)
    engine = Engine(num_blocks=14, block_size=4, max_model_len=CONTEXT, max_num_batched_tokens=24, max_num_seqs=6)
    live, num_arrived, num_aborted = set(), 0, 0
    while num_aborted < 1000:
        while len(live) < 12:
            name = f"r{num_arrived}"
            prompt = [*range(rng.randint(0, 20)), *[rng.randint(0, 2) for _ in range(rng.randint(1, 8))]]
            engine.add(make_request(name, prompt, rng.randint(1, 12)))
            live.add(name)
            num_arrived += 1
        plan = engine.plan()
        victims = [name for name in sorted(live) if rng.random() < 0.2]
        in_flight, before = victims[::2], victims[1::2]
        for name in in_flight:
            assert engine.scheduler.abort(name)
        engine.finish(plan)
        live -= {*in_flight, *engine.finished}
        for name in before:
            if name in live:
                assert engine.scheduler.abort(name)
                live.discard(name)
                num_aborted += 1
        num_aborted += len(in_flight)
    for name in live:
        engine.scheduler.abort(name)
    engine.manager.check()
    assert engine.manager.num_free_blocks == engine.manager.num_blocks
    assert not engine.scheduler.has_work and engine.counters["finished_abort"] >= 1000
    assert engine.counters["preemptions"] > 0 and engine.counters["cached_tokens"] > 0
    assert engine.scheduler.reset_prefix_cache()
    assert engine.num_queue_entries <= 64 and not list(engine.manager._publications.uncommitted())


def seeded_traffic(seed, num_blocks=(10, 16), eos=(), **options):
    """Forty requests with common prefixes in a small pool, some failing, some aborted, under the priority policy."""
    rng = random.Random(seed)
    at = {f"r{i}": rng.randint(1, 30) for i in range(40) if rng.random() < 0.1}
    engine = Engine(
        num_blocks=rng.randint(*num_blocks),
        max_model_len=CONTEXT,
        max_num_batched_tokens=rng.choice([6, 16, 40]),
        scheduling_policy="priority",
        long_prefill_token_threshold=rng.choice([0, 8]),
        faults=lambda name, computed: "broken" if computed >= at.get(name, 10**9) else None,
        **options,
    )
    wanted = []
    for i in range(40):
        prompt = [*range(rng.randint(1, 20)), *[rng.randint(0, 1) for _ in range(rng.randint(0, 4))]]
        wanted.append(make_request(f"r{i}", prompt, rng.randint(1, 16), priority=rng.randint(0, 3), eos=eos))
        engine.add(wanted[-1])
        if rng.random() < 0.5:
            engine.step()
        if rng.random() < 0.1:
            engine.scheduler.abort(f"r{rng.randint(0, i)}")
    engine.run()
    return engine, wanted


def test_random_traffic_reaches_the_rare_paths_and_survives_them(monkeypatch):
    """A property that never meets what it is about proves nothing: withdrawals, swaps, revocations, evictions and
    sharing all happen here, and every request that ended well got the tokens it gets alone."""
    reached = dict.fromkeys(("withdraw", "touched", "swaps", "evicted", "preemptions", "resumed_hits", "shared"), 0)
    withdraw, revoke = KVManager.withdraw, KVManager.revoke

    def counted_withdraw(self, held):
        reached["withdraw"] += bool(self._publications.planned_by(held))
        withdraw(self, held)

    def counted_revoke(self, failed):
        touched = revoke(self, failed)
        reached["touched"] += len(touched)
        return touched

    monkeypatch.setattr(KVManager, "withdraw", counted_withdraw)
    monkeypatch.setattr(KVManager, "revoke", counted_revoke)
    for seed in range(16):
        engine, wanted = seeded_traffic(seed)
        for request in wanted:
            name = request.request_id
            if engine.finished.get(name) in ("stop", "length"):
                assert engine.tokens[name] == alone(request, CONTEXT)
        assert engine.manager.num_free_blocks == engine.manager.num_blocks
        reached["swaps"] += sum(len(plan.block_swaps) for plan in engine.plans)
        reached["evicted"] += engine.counters["evicted_blocks"]
        reached["preemptions"] += engine.counters["preemptions"]
        reached["resumed_hits"] += engine.counters["resumed_cached_tokens"]
        reached["shared"] += sum(len(shared_in_step(plan)) for plan in engine.plans)
    assert all(reached.values()), reached


def test_random_traffic_copies_and_lets_go_and_survives_it():
    """The same with windows and sub-block match: copies, entries that become the null block, hits that begin with it,
    evictions, and preemptions of requests that had let go all happen."""
    reached = dict.fromkeys(("copies", "let_go", "null_in_hits", "evicted", "preempted_after_letting_go"), 0)
    for seed in range(16):
        engine, wanted = seeded_traffic(seed, (18, 30), layers=(FULL, WINDOWED), sub_block_match=True)
        for request in wanted:
            name = request.request_id
            if engine.finished.get(name) in ("stop", "length"):
                assert engine.tokens[name] == alone(request, CONTEXT)
        assert engine.manager.num_free_blocks == engine.manager.num_blocks
        let_go = set()
        for plan in engine.plans:
            reached["copies"] += len(plan.block_copies)
            reached["null_in_hits"] += sum(0 in new.block_ids[1] for new in plan.new_requests)
            reached["preempted_after_letting_go"] += len(let_go & set(plan.preempted_request_ids))
            let_go |= {swap.request_id for swap in plan.block_swaps if swap.block_id == 0}
        reached["let_go"] += len(let_go)
        reached["evicted"] += engine.counters["evicted_blocks"]
    assert all(reached.values()), reached


def shared_in_step(plan):
    """Blocks that two requests introduced by one plan both name."""
    tables = [set(new.block_ids[0]) for new in plan.new_requests]
    return {block for i, table in enumerate(tables) for other in tables[:i] for block in table & other}


def test_two_runs_of_the_same_traffic_make_equal_plans():
    def plans():
        engine = Engine(num_blocks=14, max_model_len=CONTEXT, max_num_batched_tokens=10)
        for i in range(12):
            engine.add(make_request(f"r{i}", [*range(i % 5 * 4), i], 6))
            engine.step()
        engine.run()
        return engine.plans

    assert plans() == plans()
