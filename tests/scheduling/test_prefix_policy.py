"""The `prefix` policy: the longest cached prefix goes first, and waiting counts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError
from octavo.kv.manager import KVManager
from octavo.scheduling.prefix_hits import PrefixHits
from tests.scheduling.harness import Engine, alone, make_request

SYSTEM = range(5000, 5016)
"""A prefix of four blocks."""


def make_engine(**options):
    return Engine(**{"scheduling_policy": "prefix", "max_num_seqs": 1, "prefix_ageing": 0.01, **options})


def order_of(engine):
    return list(dict.fromkeys(new.request_id for plan in engine.plans for new in plan.new_requests))


def test_longest_prefix_goes_first():
    engine = make_engine()
    engine.generate(make_request("seed", [*SYSTEM, 1], max_tokens=1))
    engine.add(make_request("cold", 20, max_tokens=1))
    engine.add(make_request("half", [*SYSTEM[:9], 7, 8, 9], max_tokens=1))
    engine.add(make_request("warm", [*SYSTEM, 2, 3], max_tokens=1))
    engine.run()
    assert order_of(engine)[1:] == ["warm", "half", "cold"]


def test_a_publication_while_they_wait_moves_requests_up():
    """Nothing is cached when they arrive; what `a` computes lets `c` overtake `b`."""
    engine = make_engine()
    engine.add(make_request("a", [*SYSTEM, 1], max_tokens=2))
    engine.step()
    engine.add(make_request("b", 20, max_tokens=1), make_request("c", [*SYSTEM, 2], max_tokens=1))
    engine.run()
    assert order_of(engine) == ["a", "c", "b"]


def test_an_eviction_while_they_wait_moves_requests_down():
    engine = make_engine(num_blocks=8, max_num_batched_tokens=64)
    engine.generate(make_request("seed", [*SYSTEM, 1], max_tokens=1))
    engine.add(make_request("big", 31, max_tokens=1))
    engine.step()
    assert engine.manager.num_hit_blocks(engine.manager.open([*SYSTEM, 2])) == 0
    engine.add(make_request("cold", 3, max_tokens=1))
    engine.scheduler.abort("big")
    engine.generate(make_request("seed2", [*SYSTEM, 1], max_tokens=1))
    engine.add(make_request("x", 30, max_tokens=2))
    engine.step()
    engine.add(make_request("first", 4, max_tokens=1), make_request("was_warm", [*SYSTEM, 3], max_tokens=1))
    engine.run()
    assert order_of(engine)[-2:] == ["first", "was_warm"]


def test_equal_hits_go_by_arrival():
    engine = make_engine()
    engine.add(*[make_request(name, 5, max_tokens=1) for name in "zyx"])
    engine.run()
    assert order_of(engine) == ["z", "y", "x"]


def test_waiting_outweighs_a_hit_after_hit_over_rate_tokens_of_work():
    """A hit of 16 tokens at a rate of 0.5 is worth 32 tokens of work: what arrives later than that goes behind."""
    for work, expected in ((31, ["warm", "cold"]), (33, ["cold", "warm"])):
        engine = make_engine(prefix_ageing=0.5, num_blocks=200, max_num_batched_tokens=256)
        engine.generate(make_request("seed", [*SYSTEM, 1], max_tokens=1))
        engine.add(make_request("busy", work, max_tokens=2))
        engine.step()  # computes `work` tokens ...
        before = engine.scheduler.counters.computed_tokens
        engine.scheduler.counters.computed_tokens = before - work
        engine.add(make_request("cold", 20, max_tokens=1))
        engine.scheduler.counters.computed_tokens = before
        engine.add(make_request("warm", [*SYSTEM, 2], max_tokens=1))
        engine.run()
        assert order_of(engine)[-2:] == expected


def test_a_stream_of_hits_does_not_starve_a_request_without_any():
    """Two warm requests arrive for each that is served; without ageing the cold one would never run."""
    engine = make_engine(prefix_ageing=0.1, num_blocks=100, max_num_queued_reqs=5000)
    engine.generate(make_request("seed", [*SYSTEM, 1], max_tokens=1))
    engine.add(make_request("busy", 5, max_tokens=1))
    engine.add(make_request("cold", 20, max_tokens=1))
    at_arrival = engine.scheduler.counters.computed_tokens
    for i in range(400):
        engine.add(make_request(f"w{i}", [*SYSTEM, i, 1], max_tokens=1))
        engine.add(make_request(f"v{i}", [*SYSTEM, i, 2], max_tokens=1))
        engine.step()
        if "cold" in engine.finished:
            break
    assert "cold" in engine.finished
    behind = [name for name in order_of(engine) if name[0] in "wv"]
    waited = engine.scheduler.counters.computed_tokens - at_arrival
    assert len(behind) > 10 and waited < 16 / 0.1 + 2 * 32 + 200


def test_ageing_cannot_be_switched_off():
    with pytest.raises(ConfigError, match=r"prefix_ageing=0.0: must be in .*: without ageing requests starve"):
        SchedulerConfig(prefix_ageing=0.0)


def test_a_publication_touches_only_requests_that_stand_before_it(monkeypatch):
    """Of 300 waiting requests three share the prompt that is computed; only they are looked up again."""
    engine = make_engine(num_blocks=100)
    for i in range(100):
        engine.add(make_request(f"a{i}", 20, max_tokens=1), make_request(f"b{i}", 9, max_tokens=1))
    engine.add(make_request("first", [*SYSTEM, 1], max_tokens=1, arrival_s=-1.0))
    engine.add(*[make_request(f"s{i}", [*SYSTEM, 7, i], max_tokens=1) for i in range(3)])
    looked_up = []
    count = KVManager.num_hit_blocks
    monkeypatch.setattr(KVManager, "num_hit_blocks", lambda self, held: looked_up.append(held) or count(self, held))
    hits = engine.scheduler._waiting._hits
    held = engine.manager.open([*SYSTEM, 9])
    engine.manager.adopt(held, engine.manager.match(held))
    engine.manager.allocate(held, 17)
    engine.manager.commit()
    looked_up.clear()
    moved = hits.lengthened()
    assert {request.request_id for request in moved} == {"first", "s0", "s1", "s2"}
    assert all(request.num_hit_tokens == 16 for request in moved)
    assert len(looked_up) == 1, "the others are checked against the first one's hit"


def test_aborted_and_admitted_requests_are_let_go():
    engine = make_engine(max_num_seqs=4)
    engine.add(*[make_request(f"r{i}", 10, max_tokens=2) for i in range(8)])
    engine.scheduler.abort("r7")
    engine.run()
    hits = engine.scheduler._waiting._hits
    assert len(hits) == 0 and not hits._filed and not hits._published


@settings(max_examples=60)
@given(st.data())
def test_the_head_is_always_who_would_be_best_if_all_were_looked_up_now(data):
    """Against a model that looks everybody up at every step."""
    engine = make_engine(
        num_blocks=data.draw(st.integers(10, 24)), max_num_seqs=data.draw(st.integers(1, 3)), max_model_len=40
    )
    wanted = []
    for i in range(data.draw(st.integers(2, 14))):
        shared = data.draw(st.integers(0, 30))
        own = data.draw(st.lists(st.integers(0, 1), min_size=0 if shared else 1, max_size=6))
        wanted.append(make_request(f"r{i}", [*range(shared), *own], data.draw(st.integers(1, 8))))
        engine.add(wanted[-1])
        if data.draw(st.booleans()):
            engine.step()
        if data.draw(st.integers(0, 9)) == 0:
            engine.scheduler.abort(wanted[data.draw(st.integers(0, i))].request_id)
        check_head(engine)
    while engine.scheduler.has_work:
        engine.step()
        check_head(engine)
    for request in wanted:
        if request.request_id in engine.finished:
            assert engine.tokens[request.request_id] == alone(request, 40)


def check_head(engine):
    queue = engine.scheduler._waiting
    rate = engine.config.prefix_ageing
    keys = {
        request: (
            rate * request.arrival_work - 4 * engine.manager.num_hit_blocks(request.blocks),
            request.arrival_index,
        )
        for request in queue
    }
    assert queue.head() is min(keys, key=keys.get, default=None)


def test_hits_are_known_from_the_start():
    engine = Engine()
    engine.generate(make_request("seed", [*SYSTEM, 1], max_tokens=1))
    engine.add(make_request("warm", [*SYSTEM, 2], max_tokens=1))
    (request,) = engine.scheduler._waiting
    hits = PrefixHits(engine.manager)
    hits.follow(request)
    assert request.num_hit_tokens == 16
    assert not hits.refresh(request)
