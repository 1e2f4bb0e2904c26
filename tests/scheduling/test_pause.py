"""Pauses: who runs meanwhile, who waits, and that the tokens are those of a run without one."""

import random

import pytest

from octavo.errors import EngineDrainingError
from octavo.request.orders import PauseMode
from tests.scheduling.harness import Engine, alone, make_request
from tests.scheduling.test_grammars import engine_of, shaped
from tests.scheduling.test_tiers import LONG, fill_and_evict, make_engine, wait_until_loading


def settle(engine: Engine) -> None:
    """Runs all that runs in a pause."""
    while engine.plan_ahead() or engine.in_flight:
        if engine.in_flight:
            engine.land()


@pytest.mark.parametrize("ahead", [False, True])
def test_keep_lets_nothing_run_and_all_go_on(ahead: bool) -> None:
    engine = Engine(async_scheduling=ahead)
    requests = [make_request(name, 5, max_tokens=9) for name in "ab"]
    engine.add(*requests)
    for _ in range(3):
        engine.step()
    engine.scheduler.pause(PauseMode.KEEP)
    settle(engine)  # what was in flight lands
    before = {name: len(tokens) for name, tokens in engine.tokens.items()}
    late = make_request("c", 4, max_tokens=3)
    engine.add(late)
    for _ in range(3):
        assert engine.scheduler.schedule(engine.now_s) is None
    assert engine.scheduler.has_work and engine.scheduler.load().paused is PauseMode.KEEP
    assert {name: len(tokens) for name, tokens in engine.tokens.items()} == before
    assert engine.scheduler.load().num_to_finish == 0
    engine.scheduler.resume()
    engine.run()
    for request in (*requests, late):
        assert engine.tokens[request.request_id] == alone(request)


@pytest.mark.parametrize("policy", ["fcfs", "priority", "prefix"])
@pytest.mark.parametrize("ahead", [False, True])
def test_wait_ends_those_that_have_begun_and_holds_the_others(policy: str, ahead: bool) -> None:
    engine = Engine(scheduling_policy=policy, max_num_seqs=2, async_scheduling=ahead)
    begun = [make_request(name, 5, max_tokens=6) for name in "ab"]
    waiting = [make_request(name, 5, max_tokens=3) for name in "cd"]
    engine.add(*begun, *waiting)
    engine.step()
    engine.scheduler.pause(PauseMode.WAIT)
    late = make_request("e", 5, max_tokens=3)
    engine.add(late)
    assert engine.scheduler.load().num_to_finish == 2
    settle(engine)
    assert set(engine.finished) == {"a", "b"} and engine.scheduler.load().num_to_finish == 0
    assert (engine.num_running, engine.num_waiting) == (0, 3)
    engine.scheduler.abort("d")
    engine.scheduler.resume()
    engine.run()
    assert set(engine.finished) == {"a", "b", "c", "e"}
    for request in (*begun, waiting[0], late):
        assert engine.tokens[request.request_id] == alone(request)


def test_who_was_preempted_has_begun() -> None:
    """Else a pause would never settle, or settle with requests half done."""
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16)
    engine.add(make_request("a", 8, max_tokens=6), make_request("b", 8, max_tokens=6))
    engine.step()
    engine.step()
    assert engine.plans[-1].preempted_request_ids == ("b",)
    engine.scheduler.pause(PauseMode.WAIT)
    engine.add(make_request("c", 4))
    assert engine.scheduler.load().num_to_finish == 2
    settle(engine)
    assert set(engine.finished) == {"a", "b"}


def test_drain_runs_all_that_are_there_and_refuses_others() -> None:
    engine = Engine(max_num_seqs=1)
    engine.add(make_request("a", 5), make_request("b", 5))
    engine.scheduler.pause(PauseMode.DRAIN)
    with pytest.raises(EngineDrainingError, match="drains"):
        engine.add(make_request("c", 5))
    assert engine.scheduler.load().num_to_finish == 2
    engine.run()
    assert set(engine.finished) == {"a", "b"} and engine.scheduler.load().num_to_finish == 0
    engine.scheduler.resume()
    engine.generate(make_request("c", 5))
    assert "c" in engine.finished


def test_a_pause_may_change_its_mode() -> None:
    engine = Engine()
    engine.add(make_request("a", 5, max_tokens=4))
    engine.step()
    engine.scheduler.pause(PauseMode.KEEP)
    settle(engine)
    engine.add(make_request("b", 5, max_tokens=4))
    engine.scheduler.pause(PauseMode.WAIT)
    settle(engine)
    assert set(engine.finished) == {"a"}
    engine.scheduler.pause(PauseMode.DRAIN)
    engine.run()
    assert set(engine.finished) == {"a", "b"}


def test_requests_that_wait_for_kv_are_held_when_it_has_come() -> None:
    engine = make_engine()
    fill_and_evict(engine)
    again = make_request("again", [*LONG, 7, 8], 3)
    wait_until_loading(engine, again)
    engine.scheduler.pause(PauseMode.WAIT)
    for _ in range(30):
        assert engine._schedule() is None
        engine.let_time_pass()
    assert (engine.num_waiting_for_kv, engine.num_waiting, engine.num_running) == (0, 1, 0)
    engine.scheduler.resume()
    engine.run()
    assert engine.tokens["again"] == alone(again)


@pytest.mark.parametrize("when", ["before", "during"])
def test_requests_that_wait_for_a_grammar_are_held_when_it_is_there(when: str) -> None:
    engine = engine_of()
    if when == "before":
        engine.add(shaped("a"))
    engine.scheduler.pause(PauseMode.WAIT)
    if when == "during":
        engine.add(shaped("a"))
    assert engine.num_waiting == 1
    for _ in range(6):
        engine._schedule()
        engine.let_time_pass()
    load = engine.scheduler.load()
    assert (load.num_waiting, load.num_waiting_for_grammar, load.num_running) == (1, 0, 0)
    engine.add(shaped("b"))
    engine.scheduler.abort("b")
    engine.scheduler.resume()
    engine.run()
    assert set(engine.finished) == {"a"}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_pauses_at_any_time_change_no_token(seed: int, ahead: bool) -> None:
    chance = random.Random(seed)
    policy = chance.choice(["fcfs", "priority", "prefix"])
    engine = Engine(num_blocks=24, max_num_seqs=4, scheduling_policy=policy, async_scheduling=ahead, max_model_len=48)
    requests, aborted = {}, set()
    for number in range(300):
        if len(requests) < 30 and chance.random() < 0.3 and engine.scheduler.paused is not PauseMode.DRAIN:
            prompt = [chance.randrange(3) for _ in range(chance.randrange(1, 30))]
            request = make_request(f"r{number}", prompt, chance.randrange(1, 12), priority=chance.randrange(3))
            requests[request.request_id] = request
            engine.add(request)
        if chance.random() < 0.15:
            engine.scheduler.pause(chance.choice(list(PauseMode)[1:]))
        elif chance.random() < 0.2:
            engine.scheduler.resume()
        if chance.random() < 0.05 and engine.scheduler.live_ids():
            aborted.add(victim := chance.choice(engine.scheduler.live_ids()))
            engine.scheduler.abort(victim)
        engine.plan_ahead()
        if engine.in_flight:
            engine.land()
    engine.scheduler.resume()
    engine.run()
    assert set(engine.finished) == set(requests) - aborted
    for name in engine.finished:
        assert engine.tokens[name] == alone(requests[name])
    assert engine.manager.num_free_blocks == engine.manager.num_blocks


def test_the_prefix_cache_is_reset_only_when_no_request_holds_blocks() -> None:
    """A pause with `wait` is enough; sessions and tiers are emptied with it."""
    engine = Engine(num_blocks=32, max_model_len=48, tiers={"host": 64})
    engine.generate(make_request("pinned", range(12), max_tokens=1, session="s"))
    engine.drain()
    assert engine.scheduler.load().num_pinned_blocks > 0 and engine.scheduler.load().tiers[0].num_blocks > 0
    engine.add(make_request("runs", 5, max_tokens=5), make_request("waits", 5))
    engine.step()
    assert engine.scheduler.reset_prefix_cache() is False
    assert engine.scheduler.load().num_pinned_blocks > 0
    engine.scheduler.pause(PauseMode.WAIT)
    settle(engine)
    engine.add(make_request("late", 5))
    assert engine.scheduler.reset_prefix_cache() is True
    load = engine.scheduler.load()
    assert (load.num_pinned_blocks, load.num_cached_blocks, load.num_sessions, load.num_waiting) == (0, 0, 1, 1)
    assert load.tiers[0].num_blocks == 0
    engine.scheduler.resume()
    engine.run()
    assert engine.stats("late").num_cached_tokens == 0
    engine.generate(make_request("again", range(12), max_tokens=1))
    assert engine.stats("again").num_cached_tokens == 0
