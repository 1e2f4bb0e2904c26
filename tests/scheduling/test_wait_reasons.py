"""What requests wait for, to the second: one test for each reason, and that all of them add up."""

import random

import pytest

from octavo.execution.scripted_store import Fate
from octavo.kv.transfer import Direction
from octavo.request.account import Phase, WaitReason
from octavo.request.orders import PauseMode
from octavo.request.outputs import FinishReason
from tests.scheduling.closed_ledger import check_closed
from tests.scheduling.harness import Engine, make_request
from tests.scheduling.test_grammars import engine_of, shaped
from tests.scheduling.test_tiers import LONG, fill_and_evict, make_engine, only


def waits(engine: Engine, name: str, phase: Phase = Phase.QUEUE) -> dict[WaitReason, float]:
    """Of a finished request, without those that took no time."""
    account = engine.stats(name).account
    return {reason: seconds for reason, seconds in account.waits_s.get(phase, {}).items() if seconds}


def test_slots() -> None:
    engine = Engine(max_num_seqs=1)
    engine.generate(make_request("a", 4, 3), make_request("b", 4, 2), make_request("c", 4, 1))
    assert waits(engine, "a") == {}
    assert waits(engine, "b") == {WaitReason.SLOTS: 3.0}
    assert waits(engine, "c") == {WaitReason.SLOTS: 5.0}


def test_budget() -> None:
    engine = Engine(max_num_batched_tokens=8)
    engine.generate(make_request("long", 24, 2), make_request("b", 2, 1))
    assert waits(engine, "b") == {WaitReason.BUDGET: 3.0}


def test_blocks_and_who_stands_behind_one_that_lacks_them() -> None:
    engine = Engine(num_blocks=4, max_model_len=16)
    engine.generate(make_request("a", 8, 4), make_request("b", 12, 1), make_request("c", 2, 1))
    assert waits(engine, "b") == {WaitReason.BLOCKS: 4.0}
    assert waits(engine, "c") == {WaitReason.ORDER: 4.0}


def test_blocks_that_would_not_last() -> None:
    engine = Engine(num_blocks=4, max_model_len=16, admission_conservativeness=1.0)
    engine.generate(make_request("a", 4, 8), make_request("b", 4, 8))
    assert waits(engine, "b") == {WaitReason.FORECAST: 8.0}


def test_the_limit_of_a_key_and_then_what_all_wait_for() -> None:
    engine = Engine(max_running_per_key=1, max_num_seqs=2)
    engine.generate(
        make_request("a", 4, 3, tenant="x"), make_request("b", 4, 2, tenant="x"), make_request("c", 4, 9, tenant="y")
    )
    assert waits(engine, "b") == {WaitReason.KEY_LIMIT: 3.0}
    assert waits(engine, "c") == {}
    engine = Engine(max_running_per_key=1, max_num_seqs=2)
    engine.add(make_request("a", 4, 3, tenant="x"), make_request("c", 4, 6, tenant="y"))
    engine.add(make_request("d", 4, 6, tenant="z"), make_request("b", 4, 1, tenant="x"))
    engine.run()
    assert waits(engine, "d") == {WaitReason.SLOTS: 3.0}
    assert waits(engine, "b") == {WaitReason.KEY_LIMIT: 3.0, WaitReason.SLOTS: 3.0}


def test_a_grammar() -> None:
    engine = engine_of()
    engine.generate(shaped("a", shape="3"), make_request("b", 5))
    assert waits(engine, "a") == {WaitReason.GRAMMAR: 3.0}
    assert waits(engine, "b") == {}


def test_a_load() -> None:
    engine = make_engine(fates=only(Direction.LOAD, Fate(ticks=3)))
    fill_and_evict(engine)
    engine.generate(make_request("again", [*LONG, 7, 8], 2))
    assert waits(engine, "again") == {WaitReason.KV: 3.0}


def test_the_step_that_runs() -> None:
    engine = Engine()
    engine.add(make_request("a", 4, 2))
    plan = engine.plan()
    engine.now_s += 0.25
    engine.add(make_request("b", 4, 2))
    engine.finish(plan)
    engine.run()
    assert waits(engine, "b") == {WaitReason.STEP: 1.0}


@pytest.mark.parametrize("ahead", [False, True])
def test_a_pause_in_which_nothing_runs(ahead: bool) -> None:
    engine = Engine(max_num_seqs=1, async_scheduling=ahead)
    engine.add(make_request("a", 4, 9), make_request("b", 4, 1))
    for _ in range(3):
        engine.step()
    engine.scheduler.pause(PauseMode.KEEP, engine.now_s)
    while engine.in_flight:
        engine.land()
    assert engine.scheduler.schedule(engine.now_s) is None
    engine.add(make_request("late", 4, 1))
    begin_s = engine.now_s
    for _ in range(4):
        engine.now_s += 1.0
        assert engine.scheduler.schedule(engine.now_s) is None
    engine.scheduler.resume(engine.now_s)
    engine.run()
    assert waits(engine, "a", Phase.STALLED) == {WaitReason.PAUSED: 4.0}
    assert waits(engine, "b")[WaitReason.PAUSED] == 4.0
    late = waits(engine, "late")
    assert late[WaitReason.PAUSED] == 4.0 and sum(late.values()) == engine.stats("late").first_scheduled_s - begin_s


def test_a_pause_that_lets_those_end_that_have_begun() -> None:
    engine = Engine()
    engine.add(make_request("a", 4, 6))
    engine.step()
    engine.scheduler.pause(PauseMode.WAIT, engine.now_s)
    engine.add(make_request("b", 4, 1))
    for _ in range(5):
        engine.step()
    engine.now_s += 10.0
    engine.scheduler.resume(engine.now_s)
    engine.run()
    assert waits(engine, "a", Phase.STALLED) == {}
    assert waits(engine, "b") == {WaitReason.PAUSED: 15.0}


def test_a_preempted_one_waits_for_blocks_and_runs_again_what_it_lost() -> None:
    engine = Engine(num_blocks=4, max_model_len=16, caching=False)
    engine.generate(make_request("a", 8, 6), make_request("b", 8, 6))
    account = engine.stats("b").account
    assert waits(engine, "b", Phase.PREEMPTED) == {WaitReason.BLOCKS: 5.0}
    assert [(run.phase, run.start, run.size, run.num_steps) for run in account.chunks] == [
        (Phase.PREFILL, 0, 8, 1),
        (Phase.RECOMPUTE, 0, 9, 1),
        (Phase.DECODE, 9, 1, 4),
    ]
    assert account.work[Phase.RECOMPUTE].num_tokens == 9 and engine.stats("b").num_recomputed_tokens == 8


def test_one_that_runs_but_is_left_out_is_stalled() -> None:
    """Nobody may be preempted while a step is in flight: who lacks a block sits that one out."""
    engine = Engine(num_blocks=4, max_model_len=16, async_scheduling=True)
    engine.generate(make_request("a", 8, 6), make_request("b", 8, 6))
    stalled = waits(engine, "a", Phase.STALLED) | waits(engine, "b", Phase.STALLED)
    assert set(stalled) == {WaitReason.BLOCKS} and all(seconds > 0 for seconds in stalled.values())


def test_aborts_at_any_time_leave_ledgers_that_add_up() -> None:
    rng = random.Random(5)
    engine = Engine(num_blocks=20, max_num_seqs=3, max_num_batched_tokens=12)
    names = [f"r{i}" for i in range(60)]
    num_aborted = 0
    for name in names:
        engine.add(make_request(name, rng.randint(1, 30), rng.randint(1, 12)))
        if rng.random() < 0.7:
            engine.step()
        victim = rng.choice(names)
        live = engine.scheduler.live(victim)
        if live is not None and rng.random() < 0.5:
            engine.scheduler.abort(victim, engine.now_s)
            check_closed(live.ledger(engine.now_s), FinishReason.ABORT)
            num_aborted += 1
    engine.run()
    assert num_aborted > 10


def test_a_ledger_that_is_looked_at_goes_on_as_if_nobody_had() -> None:
    def account(look: bool) -> object:
        engine = Engine(num_blocks=12, max_num_seqs=2, max_num_batched_tokens=8)
        engine.add(*[make_request(name, 10, 8) for name in "abcd"])
        while engine.scheduler.has_work:
            engine.step()
            for name in engine.scheduler.live_ids() if look else []:
                engine.scheduler.live(name).ledger(engine.now_s)  # type: ignore[union-attr]
        return [engine.stats(name) for name in "abcd"]

    assert account(look=True) == account(look=False)


def test_nothing_is_kept_where_no_ledger_is_wanted() -> None:
    engine = Engine(num_blocks=4, max_model_len=16, request_ledger=False)
    live = make_request("a", 8, 6)
    engine.add(live, make_request("b", 8, 6))
    while engine.scheduler.has_work:
        plan = engine.scheduler.schedule(engine.now_s)
        assert plan is not None
        outputs = engine.scheduler.update(plan, engine.executor.execute(plan), engine.now_s)
        assert all(output.stats.account is None for output in outputs if output.stats is not None)
        engine.now_s += 1.0
