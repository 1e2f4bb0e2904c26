"""Tiers behind the pool: what is loaded and when, who waits for it, and that faults of transfers cost nothing else."""

import pytest

from octavo.execution.scripted_store import Fate
from octavo.kv.record import Tier
from octavo.kv.transfer import Direction
from octavo.scheduling.kv_loads import MAX_WAITS
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request

HOST, DISK = {Tier.HOST: 200}, {Tier.DISK: 200}
LONG = range(40)


def only(direction, fate, otherwise=None):
    """A `FateScript`: that fate for transfers in that direction."""
    return lambda plan: fate if plan.direction is direction else otherwise or Fate()


def make_engine(**options):
    """A pool of 20 blocks of 4 tokens, steps of 16 tokens."""
    return Engine(**{"num_blocks": 20, "max_num_batched_tokens": 16, "tiers": HOST, **options})


def fill_and_evict(engine, prompt=LONG):
    """Has a prompt computed and stored, and its blocks evicted from the device."""
    engine.generate(make_request("first", prompt, 2))
    engine.drain()
    for i in range(3):
        engine.generate(make_request(f"other{i}", 60, 2))
        engine.drain()


def wait_until_loading(engine, *requests):
    engine.add(*requests)
    engine.plan_ahead()
    assert engine.num_waiting_for_kv == len(requests)


def test_a_prefix_in_a_tier_is_loaded_and_found_like_any_other():
    engine = make_engine()
    fill_and_evict(engine)
    request = make_request("again", [*LONG, 7, 8], 3)
    first = len(engine.plans)
    assert engine.generate(request) == [alone(request)]
    assert engine.plans[first].num_tokens == 2, "all but the tokens behind the last whole block came from the tier"
    stats = engine.stats("again")
    assert stats.num_cached_tokens == 40 and stats.num_loaded_tokens == {"host": 40}
    assert engine.counters["host_loaded_blocks"] == 10 and engine.counters["host_loaded_tokens"] == 40


def test_a_load_goes_on_from_a_hit_on_the_device():
    engine = make_engine()
    fill_and_evict(engine)
    engine.generate(make_request("start", [*range(12), 99], 1))
    request = make_request("again", [*LONG, 7], 3)
    assert engine.generate(request) == [alone(request)]
    assert engine.stats("again").num_cached_tokens == 40
    assert sum(engine.stats(name).num_loaded_tokens["host"] for name in ("start", "again")) == 40


def test_while_one_waits_for_kv_others_run():
    engine = make_engine(num_blocks=40, fates=only(Direction.LOAD, Fate(ticks=6)))
    engine.generate(make_request("first", LONG, 2))
    engine.drain()
    for i in range(6):
        engine.generate(make_request(f"other{i}", 60, 2))
    waiting, running = make_request("again", [*LONG, 7], 2), make_request("now", 30, 3)
    engine.add(waiting, running)
    order = [name for _ in range(20) for name in engine.step()] if engine.scheduler.has_work else []
    assert order.index("now") < order.index("again")
    engine.run()
    assert engine.tokens["again"] == alone(waiting) and engine.tokens["now"] == alone(running)


def test_two_requests_wait_for_one_load():
    engine = make_engine(num_blocks=30, fates=only(Direction.LOAD, Fate(ticks=3)))
    fill_and_evict(engine)
    wanted = [make_request("a", [*LONG, 7], 2), make_request("b", [*LONG, 8], 2)]
    wait_until_loading(engine, *wanted)
    assert len(engine.scheduler._loads._waiters) == 1
    engine.run()
    assert [engine.tokens[r.request_id] for r in wanted] == [alone(r) for r in wanted]
    assert engine.counters["host_loaded_blocks"] == 10
    assert all(engine.stats(r.request_id).num_loaded_tokens == {"host": 40} for r in wanted)


def test_blocks_of_several_tiers_make_one_hit():
    engine = make_engine(tiers={Tier.HOST: 4, Tier.DISK: 200})
    fill_and_evict(engine)
    engine.generate(make_request("start", [*range(16), 99], 1))
    engine.drain()
    held = set(engine.stores[Tier.HOST].blocks)
    engine.generate(make_request("other", 60, 2))
    request = make_request("again", [*LONG, 7], 2)
    assert engine.generate(request) == [alone(request)]
    assert held and engine.stats("again").num_cached_tokens == 40


@pytest.mark.parametrize(
    ("layers", "num_blocks"), [((FULL, WINDOWED), 50), ((WINDOWED,), 12), ((WINDOWED, FULL, WINDOWED), 60)]
)
def test_groups_with_windows_load_only_what_is_within_reach(layers, num_blocks):
    engine = make_engine(num_blocks=num_blocks, layers=layers, tiers={Tier.HOST: 2000})
    fill_and_evict(engine)
    for i in range(8):
        engine.generate(make_request(f"more{i}", 60, 2))
        engine.drain()
    request = make_request("again", [*LONG, 7], 2)
    before = engine.counters["host_loaded_blocks"]
    assert engine.generate(request) == [alone(request)]
    num_windowed = sum(group.spec.window is not None for group in engine.manager.layout.groups)
    num_full = len(engine.manager.layout.groups) - num_windowed
    loaded = engine.counters["host_loaded_blocks"] - before
    assert engine.stats("again").num_cached_tokens == 40
    assert 0 < loaded <= num_full * 10 + num_windowed * 2


def test_a_border_whose_run_is_lost_steps_down():
    """A window of 8 needs two blocks before the border; without the last of them the one before it will do."""
    engine = make_engine(num_blocks=50, layers=(FULL, WINDOWED))
    fill_and_evict(engine)
    for i in range(3):
        engine.generate(make_request(f"more{i}", 60, 2))
        engine.drain()
    request = make_request("again", [*LONG, 7], 2)
    held = engine.manager.open(list(request.prompt_token_ids))
    engine.manager.match(held)
    windowed = next(g for g, group in enumerate(engine.manager.layout.groups) if group.spec.window is not None)
    engine.tiers._books[Tier.HOST].directory.remove((windowed, held.hashes[9]))
    assert engine.generate(request) == [alone(request)]
    assert engine.stats("again").num_cached_tokens == 36


def test_a_preempted_request_loads_what_it_had_computed():
    engine = make_engine(num_blocks=16, max_num_batched_tokens=64)
    wanted = [make_request(name, 20, 20) for name in "abc"]
    engine.generate(*wanted)
    assert [engine.tokens[r.request_id] for r in wanted] == [alone(r) for r in wanted]
    assert engine.counters["preemptions"] > 0 and engine.counters["host_loaded_blocks"] > 0
    assert engine.counters["resumed_cached_tokens"] > 0


def test_after_a_failure_what_has_come_is_used_and_the_tier_rests():
    engine = make_engine(fates=only(Direction.LOAD, Fate(ticks=2, fails_after=2)))
    fill_and_evict(engine)
    request = make_request("again", [*LONG, 7], 2)
    assert engine.generate(request) == [alone(request)]
    assert engine.stats("again").num_cached_tokens == 8 and engine.counters["host_failed_loads"] == 1


def test_a_request_waits_for_what_others_load_and_then_for_the_rest():
    waits = []
    engine = make_engine(num_blocks=30, fates=only(Direction.LOAD, Fate(ticks=3)))
    fill_and_evict(engine)
    short, long = make_request("short", [*range(20), 9], 2), make_request("long", [*LONG, 7], 2)
    wait_until_loading(engine, short, long)
    state = engine.scheduler._requests["long"]
    while engine.scheduler.has_work:
        engine.step()
        waits.append(state.num_kv_waits)
    assert engine.tokens["long"] == alone(long) and engine.tokens["short"] == alone(short)
    assert engine.stats("long").num_loaded_tokens == {"host": 40} and max(waits) == MAX_WAITS
    assert engine.counters["host_loaded_blocks"] == 10, "no block twice"


def test_salted_prefixes_are_loaded_under_their_salt_only():
    engine = make_engine()
    engine.generate(make_request("first", LONG, 2, cache_salt="mine"))
    engine.drain()
    for i in range(3):
        engine.generate(make_request(f"other{i}", 60, 2))
        engine.drain()
    theirs, mine = (make_request(salt, [*LONG, 7], 2, cache_salt=salt) for salt in ("theirs", "mine"))
    assert engine.generate(theirs) == [alone(theirs)] and engine.stats("theirs").num_cached_tokens == 0
    assert engine.generate(mine) == [alone(mine)] and engine.stats("mine").num_loaded_tokens == {"host": 40}


def test_requests_with_prompt_logprobs_wait_for_nothing():
    engine = make_engine()
    fill_and_evict(engine)
    engine.generate(make_request("again", [*LONG, 7], 2, prompt_logprobs=0))
    assert engine.stats("again").num_cached_tokens == 0 and engine.counters["host_loaded_blocks"] == 0


def test_blocks_survive_in_a_store_that_is_opened_again():
    before = make_engine(tiers=DISK)
    fill_and_evict(before)
    survived = before.stores[Tier.DISK].blocks
    engine = make_engine(tiers=DISK, found=survived)
    request = make_request("again", [*LONG, 7], 2)
    assert engine.generate(request) == [alone(request)]
    assert engine.stats("again").num_loaded_tokens == {"disk": 40}


def test_what_is_loaded_from_disk_is_kept_in_host_memory_too():
    before = make_engine(tiers=DISK)
    fill_and_evict(before)
    engine = make_engine(tiers={Tier.HOST: 100, Tier.DISK: 200}, found=before.stores[Tier.DISK].blocks)
    engine.generate(make_request("again", [*LONG, 7], 2))
    engine.drain()
    for i in range(3):
        engine.generate(make_request(f"other{i}", 60, 2))
        engine.drain()
    engine.generate(make_request("once more", [*LONG, 8], 2))
    assert engine.stats("once more").num_loaded_tokens == {"host": 40}


# ---- load or recompute


def with_speeds(engine, load_bytes_per_s, tokens_per_s):
    """Tells an engine what it might have measured."""
    for book in engine.tiers._books.values():
        book.speed.measured(1000, 1000 / load_bytes_per_s, 0, 1000 / load_bytes_per_s, engine.now_s)
    engine.tiers.prefill_speed.measured(1000, 1, 1000 / tokens_per_s)


@pytest.mark.parametrize(("tokens_per_s", "loads"), [(10.0, True), (1000.0, False)])
def test_what_is_computed_sooner_is_not_loaded(tokens_per_s, loads):
    """40 tokens are 320 bytes here: 0.32 s at 1,000 bytes a second."""
    engine = make_engine()
    fill_and_evict(engine)
    with_speeds(engine, 1000.0, tokens_per_s)
    request = make_request("again", [*LONG, 7], 2)
    assert engine.generate(request) == [alone(request)]
    assert (engine.counters["host_loaded_blocks"] > 0) == loads


def test_bytes_that_are_being_loaded_count():
    engine = make_engine(num_blocks=60, fates=only(Direction.LOAD, Fate(ticks=15)))
    fill_and_evict(engine)
    engine.generate(make_request("b first", range(100, 140), 2))
    engine.drain()
    for i in range(8):
        engine.generate(make_request(f"more{i}", 60, 2))
        engine.drain()
    with_speeds(engine, 1000.0, 80.0)  # 0.32 s to load, 0.5 s to compute; behind another load 0.64 s
    engine.add(make_request("a", [*LONG, 7], 2), make_request("b", [*range(100, 140), 7], 2))
    engine.plan_ahead()
    assert [r.request_id for r in engine.scheduler._loads._load_of] == ["a"]
    engine.run()
    assert engine.stats("b").num_cached_tokens == 0


# ---- shortage


def test_a_store_gives_up_a_block_that_is_handed_out():
    """The pool holds one request: whoever comes next needs the blocks that are still being stored."""
    engine = make_engine(num_blocks=11, fates=only(Direction.STORE, Fate(stalls=True)))
    first, second = make_request("first", LONG, 2), make_request("second", 40, 2)
    assert engine.generate(first, second) == [alone(first), alone(second)]
    assert max(plan.step for plan in engine.plans) < 10, "nobody waited for the lease"
    assert len(engine.tiers._transfers) > 0
    engine.now_s += 100.0
    engine.drain()


def test_a_load_gives_way_to_a_running_request_that_is_short_of_blocks():
    faults = [Fate(stalls=True)]
    fates = lambda plan: faults.pop() if plan.direction is Direction.LOAD and faults else Fate()  # noqa: E731
    engine = make_engine(num_blocks=21, fates=fates, lease_s=1000.0)
    fill_and_evict(engine)
    grows = make_request("grows", 36, 40)
    engine.add(grows)
    engine.step()
    loads = make_request("again", [*LONG, 7], 2)
    engine.add(loads)
    for _ in range(3):
        engine.step()
    assert engine.num_waiting_for_kv == 1
    engine.run(max_steps=200)
    assert engine.tokens["grows"] == alone(grows) and engine.tokens["again"] == alone(loads)
    assert engine.counters["preemptions"] == 0 and engine.now_s < 900


def test_a_request_that_waits_for_kv_does_not_count_as_running_and_does_as_waiting():
    engine = make_engine(fates=only(Direction.LOAD, Fate(stalls=True)))
    fill_and_evict(engine)
    wait_until_loading(engine, make_request("again", [*LONG, 7], 2))
    load = engine.scheduler.load()
    assert (load.num_waiting, load.num_running, load.num_waiting_for_kv) == (1, 0, 1)
    assert load.tiers[0].tier == "host" and 0 < load.tiers[0].used_bytes <= load.tiers[0].capacity_bytes


def test_loads_fill_at_most_a_share_of_the_pool():
    engine = make_engine(num_blocks=40, max_num_seqs=8, fates=only(Direction.LOAD, Fate(stalls=True)))
    prompts = {name: range(start, start + 40) for name, start in zip("abcd", (0, 100, 200, 300), strict=True)}
    for name, prompt in prompts.items():
        engine.generate(make_request(f"{name} first", prompt, 2))
        engine.drain()
    for i in range(5):
        engine.generate(make_request(f"other{i}", 60, 2))
        engine.drain()
    wanted = [make_request(name, [*prompt, 7], 2) for name, prompt in prompts.items()]
    engine.add(*wanted)
    engine.plan_ahead()
    held = engine.manager.num_blocks - engine.manager.num_free_blocks
    assert 10 <= len(engine.tiers._loading) <= 20 and held <= 40
    engine.run()
    assert [engine.tokens[r.request_id] for r in wanted] == [alone(r) for r in wanted]


def test_resetting_the_cache_forgets_the_tiers_too():
    engine = make_engine(fates=only(Direction.STORE, Fate(ticks=5)))
    fill_and_evict(engine)
    engine.generate(make_request("more", 30, 2))
    assert engine.scheduler.reset_prefix_cache()
    engine.drain()
    assert all(not store.blocks for store in engine.stores.values())
    request = make_request("again", [*LONG, 7], 2)
    assert engine.generate(request) == [alone(request)] and engine.stats("again").num_cached_tokens == 0


def test_a_reset_is_refused_while_somebody_waits_for_kv():
    engine = make_engine(fates=only(Direction.LOAD, Fate(stalls=True)))
    fill_and_evict(engine)
    wait_until_loading(engine, make_request("again", [*LONG, 7], 2))
    assert not engine.scheduler.reset_prefix_cache()


# ---- the fault matrix

LOAD_FAULTS = {
    "fails at once": Fate(ticks=1, fails_after=0),
    "fails midway": Fate(ticks=2, fails_after=4),
    "loses a block": Fate(ticks=2, fails_after=4, loses=True),
    "stalls": Fate(stalls=True),
    "stalls and ends after its lease": Fate(stalls=True, ends_late=True),
    "ends late": Fate(ticks=60, ends_late=True),
    "repeats itself": Fate(ticks=2, repeats=True),
    "repeats a failure": Fate(ticks=2, fails_after=4, loses=True, repeats=True),
    "ends in the same call": Fate(ticks=0),
}
STORE_FAULTS = {name: fate for name, fate in LOAD_FAULTS.items() if not fate.loses}
ASYNC = pytest.mark.parametrize("ahead", [False, True], ids=["sync", "async"])


def check_nothing_is_left(engine):
    """No block is held by anybody, and the tiers know exactly what lies there."""
    engine.now_s += 1000.0  # past all leases
    engine.drain()
    assert engine.manager.num_free_blocks == engine.manager.num_blocks
    for tier, store in engine.stores.items():
        assert set(engine.tiers._books[tier].directory.names()) == set(store.blocks)


@ASYNC
@pytest.mark.parametrize("fault", LOAD_FAULTS)
def test_a_load_that_goes_wrong_costs_time_and_nothing_else(fault, ahead):
    fate, lease_s = LOAD_FAULTS[fault], 20.0
    engine = make_engine(fates=only(Direction.LOAD, fate), lease_s=lease_s, async_scheduling=ahead)
    fill_and_evict(engine)
    started = engine.now_s
    wanted = [make_request("a", [*LONG, 7], 3), make_request("b", [*LONG, 8], 3)]
    assert engine.generate(*wanted) == [alone(request) for request in wanted]
    assert engine.now_s - started < 2 * lease_s + 15
    assert engine.counters["host_lost_blocks"] == fate.loses
    check_nothing_is_left(engine)


@ASYNC
@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_a_store_that_goes_wrong_costs_nothing_but_its_blocks(fault, ahead):
    fates = only(Direction.STORE, STORE_FAULTS[fault])
    engine = make_engine(fates=fates, lease_s=20.0, async_scheduling=ahead)
    started = engine.now_s
    wanted = [make_request("a", LONG, 3), make_request("b", 40, 3), make_request("c", LONG, 3)]
    assert engine.generate(*wanted) == [alone(request) for request in wanted]
    assert engine.now_s - started < 20, "nobody waits for a store"
    check_nothing_is_left(engine)


@ASYNC
@pytest.mark.parametrize("when", range(6))
@pytest.mark.parametrize("fault", ["stalls", "stalls and ends after its lease", "ends late", "fails midway"])
def test_a_request_can_be_aborted_at_any_time_of_its_load(fault, when, ahead):
    fates = only(Direction.LOAD, LOAD_FAULTS[fault])
    engine = make_engine(fates=fates, async_scheduling=ahead)
    fill_and_evict(engine)
    engine.add(make_request("again", [*LONG, 7], 3))
    for _ in range(when):
        engine.step()
    assert engine.scheduler.abort("again") and not engine.scheduler.abort("again")
    while engine.in_flight:
        engine.land()
    assert engine.manager.num_free_blocks == engine.manager.num_blocks, "at once"
    check_nothing_is_left(engine)


@ASYNC
def test_of_two_that_wait_for_one_load_one_may_be_aborted(ahead):
    engine = make_engine(num_blocks=30, fates=only(Direction.LOAD, Fate(ticks=5)), async_scheduling=ahead)
    fill_and_evict(engine)
    stays = make_request("stays", [*LONG, 8], 2)
    wait_until_loading(engine, make_request("goes", [*LONG, 7], 2), stays)
    engine.scheduler.abort("goes")
    engine.run()
    assert engine.tokens["stays"] == alone(stays) and engine.stats("stays").num_loaded_tokens == {"host": 40}
    check_nothing_is_left(engine)


def test_a_tier_that_fails_rests_and_is_asked_again_later():
    broken = [True]
    engine = make_engine(fates=lambda plan: Fate(ticks=1, fails_after=0) if broken[0] else Fate())
    engine.generate(make_request("first", LONG, 2))
    engine.drain()
    num_failed = engine.counters["host_failed_stores"]
    assert num_failed <= 2, "what was under way when the first failed, and no more"
    broken[0] = False
    engine.now_s += 61.0
    engine.generate(make_request("second", 40, 2))
    engine.drain()
    assert engine.stores[Tier.HOST].blocks and engine.counters["host_failed_stores"] == num_failed


def test_a_tier_that_stalls_makes_only_its_first_requests_wait():
    """After a lease has run out it rests, although it still takes blocks: the next ones do not wait another lease."""
    engine = make_engine(num_blocks=30, fates=only(Direction.LOAD, Fate(stalls=True)), lease_s=50.0)
    fill_and_evict(engine)
    engine.generate(make_request("a", [*LONG, 7], 2))
    for i in range(3):
        engine.generate(make_request(f"evicts{i}", 100, 2))
    assert engine.counters["host_stored_blocks"] > 30
    patience = engine.tiers._books[Tier.HOST].patience[Direction.LOAD]
    while patience.lasts(engine.now_s):
        patience.failed(engine.now_s)
    started, second = engine.now_s, make_request("b", [*LONG, 8], 2)
    assert engine.generate(second) == [alone(second)]
    assert engine.now_s - started < 10


def test_a_damaged_block_is_computed_again_and_stored_again():
    faults = [Fate(ticks=2, fails_after=3, loses=True)]
    engine = make_engine(fates=lambda plan: faults.pop() if plan.direction is Direction.LOAD and faults else Fate())
    fill_and_evict(engine)
    request = make_request("again", [*LONG, 7], 2)
    assert engine.generate(request) == [alone(request)]
    engine.drain()
    assert engine.counters["host_lost_blocks"] == 1
    for i in range(3):
        engine.generate(make_request(f"evicts{i}", 60, 2))
        engine.drain()
    once_more = make_request("once more", [*LONG, 8], 2)
    assert engine.generate(once_more) == [alone(once_more)]
    assert engine.stats("once more").num_loaded_tokens == {"host": 40}
