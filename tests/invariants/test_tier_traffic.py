"""Random traffic over a pool with tiers behind it, whose transfers fail, stall, repeat themselves and end too late.

As in `test_random_traffic`, and beside that: the scripted stores raise where a block is touched in transit or a tier
holds more than fits; the laws of the tiers' books hold after every call; what observers heard is what lies there; and
whatever becomes of transfers, everybody gets the tokens it gets alone, in a bounded number of steps.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from octavo.execution.scripted_store import Fate
from octavo.kv.hashing import BlockHasher
from octavo.kv.record import Tier
from octavo.kv.transfer import Direction
from tests.effort import times
from tests.invariants.test_async_traffic import FailingParts, Interleavings
from tests.invariants.test_random_traffic import (
    CONTEXT,
    Traffic,
    TrafficRules,
    check_that_all_finish,
    engine_options,
    make_engine,
)
from tests.kv.mirror import Mirror, computed_names
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request

CALM = [Fate(ticks=ticks) for ticks in (0, 1, 2, 5)]
FAULTS = [
    Fate(stalls=True),
    Fate(stalls=True, ends_late=True),
    Fate(ticks=3, repeats=True),
    Fate(ticks=2, fails_after=0),
    Fate(ticks=3, fails_after=1),
    Fate(ticks=2, fails_after=1, loses=True, repeats=True),
    Fate(ticks=40, ends_late=True),
]


def random_fates(seed, share_of_faults):
    """A `FateScript` that says the same of the same transfer."""

    def fate(plan):
        rng = random.Random(seed * 1_000_003 + plan.transfer_id)
        return rng.choice(FAULTS if rng.random() < share_of_faults else CALM)

    return fate


tier_options = st.fixed_dictionaries(
    {
        "tiers": st.sampled_from(
            [
                {Tier.HOST: 12},
                {Tier.HOST: 100},
                {Tier.DISK: 60},
                {Tier.HOST: 8, Tier.DISK: 100},
                {Tier.HOST: 1, Tier.DISK: 2},
            ]
        ),
        "fates": st.builds(random_fates, st.integers(0, 1000), st.sampled_from([0.0, 0.2, 0.6])),
        "lease_s": st.sampled_from([3.0, 10.0]),
    }
)


def watch(engine: Engine) -> Mirror:
    """A mirror of what lies where."""
    mirror = Mirror(BlockHasher("test", engine.manager.layout.block_size))
    engine.manager.observe(mirror)
    engine.tiers.observe(mirror)
    return mirror


def check_mirror(engine, mirror):
    """Observers know exactly what is there; stores hold at least what is known of them."""
    assert mirror.names() == computed_names(engine.manager)
    for tier, book in engine.tiers._books.items():
        assert mirror.names(tier) == {name for name in book.directory.names() if name in book.directory}
        if not engine.tiers._removals:
            assert mirror.names(tier) <= set(engine.stores[tier].blocks)


def check_nothing_is_in_transit(engine, mirror):
    """After all transfers have ended stores hold what is known of them and nothing else."""
    engine.drain()
    check_mirror(engine, mirror)
    assert not engine.tiers._transfers and not engine.tiers._loading and not engine.tiers._readers
    assert not engine.scheduler._loads._waiters and not engine.scheduler._waiting._parked
    for tier, store in engine.stores.items():
        assert mirror.names(tier) == set(store.blocks)


class Watched(TrafficRules):
    """What a mirror must show, however steps are taken."""

    @invariant()
    def observers_know_what_is_there(self):
        if hasattr(self, "mirror"):
            check_mirror(self.engine, self.mirror)

    def teardown(self):
        super().teardown()
        if hasattr(self, "mirror"):
            check_nothing_is_in_transit(self.engine, self.mirror)


class TierTraffic(Watched, Traffic):
    """Whole steps."""

    @initialize(options=engine_options, tiers=tier_options)
    def start(self, options, tiers):
        self.open(make_engine({**options, **tiers}))
        self.mirror = watch(self.engine)

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data())
    def abort_in_flight(self, data):
        planned = self.engine.plan_ahead()
        self.abort(data)
        if planned:
            self.engine.land()


TestTierTraffic = TierTraffic.TestCase
TestTierTraffic.settings = settings(max_examples=times(50), stateful_step_count=25)


@pytest.mark.slow
class TestMuchTierTraffic(TierTraffic.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(60), stateful_step_count=60)


class TierInterleavings(Watched, Interleavings):
    """Steps planned ahead."""

    @initialize(options=engine_options, tiers=tier_options)
    def start(self, options, tiers):
        self.failing = FailingParts()
        self.open(make_engine({**options, **tiers, "async_scheduling": True, "faults": self.failing}))
        self.mirror = watch(self.engine)

    @rule()
    def plan(self):
        planned = self.engine.plan_ahead()
        waiting = self.engine.in_flight or self.engine.num_waiting_for_kv
        assert planned or waiting or not self.engine.scheduler.has_work

    @rule()
    def wait(self):
        self.engine.let_time_pass()


TestTierInterleavings = TierInterleavings.TestCase
TestTierInterleavings.settings = settings(max_examples=times(50), stateful_step_count=30)


@pytest.mark.slow
class TestManyTierInterleavings(TierInterleavings.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(60), stateful_step_count=60)


@settings(max_examples=60)
@given(engine_options, tier_options, st.booleans(), st.data())
def test_any_finite_set_of_requests_finishes_in_a_pool_for_one(options, tiers, ahead, data):
    """Liveness with nothing to spare, also after the tiers have been filled."""
    engine = make_engine({**options, **tiers, "spare_blocks": 0, "async_scheduling": ahead})
    engine.generate(*[make_request(f"before{i}", [*range(12), i], 2) for i in range(3)])
    check_that_all_finish(engine, data)


def test_seeded_traffic_reaches_the_rare_paths_and_survives_them():
    """Loads of each kind of end, loads that give way, loads shared and stores cancelled all happen here."""
    reached = dict.fromkeys(
        ("loaded", "resumed", "shared", "gave_way", "expired", "lost", "recalled", "evicted", "aborted"), 0
    )
    for seed in range(20):
        count_rare_paths(seed, reached)
    assert all(reached.values()), reached


def count_rare_paths(seed, reached):
    rng = random.Random(seed)
    engine = Engine(
        num_blocks=rng.randint(22, 30) if seed % 2 else rng.randint(11, 16),
        layers=(FULL, WINDOWED) if seed % 2 else (FULL,),
        max_model_len=CONTEXT,
        tiers={Tier.HOST: rng.choice([10, 60]), Tier.DISK: 80},
        fates=random_fates(seed, 0.3),
        lease_s=6.0,
        async_scheduling=seed % 3 == 0,
        max_bypasses=4,
    )
    loads, tiers = engine.scheduler._loads, engine.tiers
    give_way, expire, cancel, forget = loads.give_way, tiers.expire, tiers._cancel, loads.forget

    def counted_give_way():
        gave_way = give_way()
        reached["gave_way"] += gave_way
        return gave_way

    def counted_expire(now_s):
        ended = expire(now_s)
        reached["expired"] += len(ended)
        return ended

    def counted_cancel(transfer):
        reached["recalled"] += transfer.plan.direction is Direction.STORE
        cancel(transfer)

    def counted_forget(request):
        reached["aborted"] += request in loads._load_of
        forget(request)

    loads.give_way, tiers.expire, tiers._cancel, loads.forget = (
        counted_give_way,
        counted_expire,
        counted_cancel,
        counted_forget,
    )
    wanted = []
    for i in range(40):
        prompt = [*range(rng.choice([0, 12, 24, 30])), *[rng.randint(0, 1) for _ in range(rng.randint(1, 5))]]
        wanted.append(make_request(f"r{i}", prompt, rng.randint(1, 6)))
        engine.add(wanted[-1])
        for _ in range(rng.randint(0, 4)):
            engine.step()
        reached["shared"] += any(len(waiters) > 1 for waiters in loads._waiters.values())
        if rng.random() < 0.15:
            waiting = [request.request_id for request in loads._load_of]
            engine.scheduler.abort(rng.choice(waiting or [f"r{rng.randint(0, i)}"]))
    engine.run()
    for request in wanted:
        if request.request_id in engine.finished:
            assert engine.tokens[request.request_id] == alone(request, CONTEXT)
    assert engine.manager.num_free_blocks == engine.manager.num_blocks
    counters = engine.counters
    reached["loaded"] += counters["host_loaded_blocks"] + counters["disk_loaded_blocks"]
    reached["lost"] += counters["host_lost_blocks"] + counters["disk_lost_blocks"]
    reached["evicted"] += counters["host_evicted_blocks"]
    reached["resumed"] += counters["resumed_cached_tokens"] > 0
