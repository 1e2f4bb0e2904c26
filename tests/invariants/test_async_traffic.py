"""Random traffic with steps planned ahead: every interleaving of arrivals, plans, landings, aborts and resets.

As in `test_random_traffic` the harness verifies conservation after each plan and each landing, and the scripted
executor every plan and every read of the KV memory: no block of a step in flight is written or reused by mistake. Here:
the tokens are those a request gets alone, so those of sync scheduling; a request discards at most one; whoever
fails or is aborted takes nobody along; nothing is left behind.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from octavo.scheduling.scheduler import Scheduler
from tests.effort import times
from tests.invariants.test_random_traffic import (
    CONTEXT,
    TrafficRules,
    check_that_all_finish,
    engine_options,
    make_engine,
    requests,
    seeded_traffic,
)
from tests.scheduling.harness import FULL, WINDOWED, alone


class FailingParts:
    """Faults to come: request -> the number of tokens in its cache from which on its parts fail."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}

    def __call__(self, request_id: str, num_computed: int) -> str | None:
        return "broken" if num_computed >= self.at.get(request_id, 10**9) else None


class Interleavings(TrafficRules):
    """What the core's thread may do while a step runs, in any order."""

    most_discarded = 1
    """Tokens of one request that come behind its end."""

    @initialize(options=engine_options)
    def start(self, options):
        self.failing = FailingParts()
        self.open(make_engine({**options, "async_scheduling": True, "faults": self.failing}))

    @rule(data=st.data(), fails=st.sampled_from([None, None, None, 1, 5, 12, 20]))
    def arrive(self, data, fails):
        request = self.add(data)
        if fails is not None:
            self.failing.at[request.request_id] = fails

    @rule()
    def plan(self):
        planned = self.engine.plan_ahead()
        assert planned or self.engine.in_flight or not self.engine.scheduler.has_work

    @precondition(lambda self: self.engine.in_flight)
    @rule()
    def land(self):
        self.engine.land()

    @rule(count=st.integers(1, 5))
    def step(self, count):
        for _ in range(count):
            if self.engine.scheduler.has_work or self.engine.in_flight:
                self.engine.step()

    def check_ends(self) -> None:
        """As alone, up to where it was aborted or failed; at most one token too many."""
        engine = self.engine
        assert not list(engine.manager._publications.uncommitted())
        assert all(count <= self.most_discarded for count in engine.discarded.values())
        most = self.most_discarded * engine.counters["finished_stop"]
        assert engine.counters["discarded_tokens"] == engine.discarded.total() <= most
        for name, request in self.requests.items():
            expected, got = alone(request, CONTEXT), engine.tokens[name]
            last_computed = len(request.prompt_token_ids) + len(expected) - 1
            if name in self.aborted:
                assert got == expected[: len(got)]
            elif self.failing.at.get(name, 10**9) <= last_computed:
                assert engine.finished[name] == "error" and got == expected[: len(got)]
            else:
                assert engine.finished[name] in ("stop", "length") and got == expected


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=times(60), stateful_step_count=30)


@pytest.mark.slow
class TestManyInterleavings(Interleavings.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(75), stateful_step_count=60)


@settings(max_examples=60)
@given(engine_options, st.data())
def test_any_finite_set_of_requests_finishes_in_a_pool_for_one(options, data):
    """Liveness with nothing to spare, although what a step in flight will free is still held."""
    check_that_all_finish(make_engine({**options, "spare_blocks": 0, "async_scheduling": True}), data)


@settings(max_examples=40)
@given(engine_options, st.data())
def test_nobody_is_preempted_with_a_part_in_flight(options, data):
    """Unless what it read was garbage: so no token of a preempted request is ever on its way."""
    engine = make_engine({**options, "async_scheduling": True})
    wanted = [data.draw(requests(f"r{i}")) for i in range(data.draw(st.integers(1, 10)))]
    engine.add(*wanted)
    while engine.scheduler.has_work or engine.in_flight:
        flying = [name for plan in engine.in_flight for name in plan.request_ids]
        if engine.plan_ahead():
            assert not (flying and engine.in_flight[-1].preempted_request_ids)
        else:
            engine.land()


def test_seeded_traffic_reaches_the_rare_paths_and_survives_them(monkeypatch):
    """Landings awaited for want of blocks, void parts, late ends and overrun tokens all happen here."""
    reached = dict.fromkeys(("awaited", "void", "discarded", "preemptions", "copies", "let_go"), 0)
    land = Scheduler._land

    def counted_land(self, plan, result):
        draft = land(self, plan, result)
        reached["void"] += len(draft.void)
        reached["awaited"] += draft.must_land
        return draft

    monkeypatch.setattr(Scheduler, "_land", counted_land)
    for seed in range(24):
        layers = (FULL, WINDOWED) if seed % 2 else (FULL,)
        pool = (18, 30) if seed % 2 else (10, 16)
        options = {"layers": layers, "sub_block_match": True, "async_scheduling": True}
        engine, wanted = seeded_traffic(seed, pool, tuple(range(0, 1000, 9)), **options)
        for request in wanted:
            name = request.request_id
            if engine.finished.get(name) in ("stop", "length"):
                assert engine.tokens[name] == alone(request, CONTEXT)
        assert engine.manager.num_free_blocks == engine.manager.num_blocks
        assert max(engine.discarded.values(), default=0) <= 1
        reached["discarded"] += engine.counters["discarded_tokens"]
        reached["preemptions"] += engine.counters["preemptions"]
        reached["copies"] += engine.counters["copied_tokens"]
        reached["let_go"] += sum(swap.block_id == 0 for plan in engine.plans for swap in plan.block_swaps)
    assert all(reached.values()), reached
