"""Sessions in the scheduler: conversations under pressure, and nothing lost or stuck whatever happens to them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.kv.record import Tier
from octavo.request.pin import PinRequest
from tests.invariants.test_tier_traffic import random_fates
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request
from tests.scheduling.test_faults import failing

POLICIES = ["fcfs", "priority", "prefix"]


def pinned(engine, session="s", tenant=""):
    """Tokens that a session holds; None if there is no such session."""
    states = {one.session_id: one.num_pinned_tokens for one in engine.pins.states(tenant, engine.now_s)}
    return states.get(session)


def crowd(engine, start, count=12):
    """Other people's requests, enough to fill the pool several times."""
    engine.generate(
        *(make_request(f"x{start + i}", range(1000 * (start + i), 1000 * (start + i) + 40)) for i in range(count))
    )


def converse(engine, session, turns=4):
    """A conversation whose every turn goes on from the last answer; (cached tokens, answer) per turn."""
    known, history = list(range(21)), []
    for turn in range(turns):
        request = make_request(f"turn{turn}", known, max_tokens=7, session=session)
        (answer,) = engine.generate(request)
        history.append((engine.stats(f"turn{turn}").num_cached_tokens, answer))
        known = [*known, *answer, 500 + turn, 501, 502]
        crowd(engine, 100 * (turn + 1))
    return history


@pytest.mark.parametrize("layers", [(FULL,), (FULL, WINDOWED)], ids=["full", "windows"])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_conversation_keeps_its_hits_under_pressure_only_with_a_session(layers, ahead):
    options = {"num_blocks": 64, "layers": layers, "async_scheduling": ahead}
    with_session, without = Engine(**options), Engine(**options)
    kept, lost = converse(with_session, "s"), converse(without, None)
    assert [answer for _, answer in kept] == [answer for _, answer in lost]
    assert [cached for cached, _ in lost] == [0, 0, 0, 0]
    # turn t has 21 + 10 t tokens, and the one before left 21 + 10 (t - 1) + 6 computed
    assert [cached for cached, _ in kept] == [0, 24, 36, 44]
    assert pinned(with_session) == 56


def test_the_ledger_says_what_is_held():
    engine = Engine(num_blocks=64)
    engine.generate(make_request("a", 10, max_tokens=4, session="s"), make_request("b", 10, max_tokens=4))
    assert (engine.stats("a").num_pinned_tokens, engine.stats("a").pin_problem) == (12, "")
    assert engine.stats("b").num_pinned_tokens is None


def test_an_answer_comes_even_if_it_cannot_be_held_and_says_why():
    engine = Engine(num_blocks=64, max_pinned_tokens=8)
    engine.generate(make_request("a", 6, max_tokens=4, session="s"))
    engine.generate(make_request("b", 16, max_tokens=4, session="s"))
    stats = engine.stats("b")
    assert engine.finished["b"] == "length" and stats.num_pinned_tokens == 8 == pinned(engine)
    assert "16 tokens takes more than the 8 that one key may hold" in stats.pin_problem


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_an_abort_keeps_the_old_pin(when):
    engine = Engine(num_blocks=64)
    engine.generate(make_request("a", range(12), max_tokens=1, session="s"))
    engine.add(make_request("b", range(30), max_tokens=9, session="s"))
    if when == "running":
        engine.step()
        engine.step()
    assert engine.scheduler.abort("b")
    engine.check()
    assert pinned(engine) == 12


def test_an_error_keeps_the_old_pin():
    engine = Engine(num_blocks=64, faults=failing(b=31))
    engine.generate(make_request("a", range(12), max_tokens=1, session="s"))
    engine.generate(make_request("b", range(30), max_tokens=9, session="s"))
    assert engine.finished["b"] == "error" and pinned(engine) == 12


@pytest.mark.parametrize("ahead", [False, True])
def test_an_end_at_a_stop_string_is_a_good_end(ahead):
    engine = Engine(num_blocks=64, async_scheduling=ahead)
    engine.add(make_request("a", range(12), max_tokens=20, session="s"))
    for _ in range(6):
        engine.step()
    assert engine.scheduler.end("a", engine.now_s) and not engine.scheduler.end("a", engine.now_s)
    engine.check()
    assert pinned(engine) == 16
    while engine.in_flight:
        engine.land()


def test_a_lease_ends_between_steps_and_frees_the_blocks():
    engine = Engine(num_blocks=64)
    engine.generate(make_request("a", range(12), max_tokens=1, session=PinRequest(session_id="s", lease_s=5)))
    assert engine.scheduler.load().num_pinned_blocks == 3 and engine.scheduler.load().num_sessions == 1
    engine.now_s += 4
    engine.generate(make_request("b", 3, max_tokens=1))
    assert engine.pins.num_blocks == 0, "the step after the end of the lease let go of them"


def test_the_end_of_a_lease_is_foretold_so_that_an_idle_engine_sees_it():
    engine = Engine(num_blocks=64)
    assert engine.scheduler.next_lease_end_s() is None
    engine.generate(make_request("a", range(12), max_tokens=1, session=PinRequest(session_id="s", lease_s=5)))
    end_s = engine.scheduler.next_lease_end_s()
    assert end_s is not None and 5 <= end_s <= engine.now_s + 5
    engine.now_s += 6
    assert engine.scheduler.schedule(engine.now_s) is None and engine.scheduler.next_lease_end_s() is None
    assert engine.pins.num_blocks == 0


def test_what_a_session_lost_comes_back_from_a_tier():
    engine = Engine(num_blocks=40, max_model_len=60, tiers={Tier.HOST: 400}, max_pinned_share=0.5)
    prompt = range(50)
    engine.generate(make_request("a", prompt, max_tokens=4, session=PinRequest(session_id="s", lease_s=2)))
    engine.now_s += 9
    crowd(engine, 1)
    assert len(engine.pins) == 0
    again = make_request("b", [*prompt, 7], max_tokens=4, session="s")
    engine.generate(again)
    assert engine.stats("b").num_cached_tokens >= 48, "loaded"
    assert engine.tokens["b"] == alone(again) and pinned(engine) == 52
    engine.drain()


def test_blocks_that_a_lease_frees_let_the_next_request_start():
    engine = Engine(num_blocks=16, max_model_len=33, max_pinned_share=1.0, admission_conservativeness=1.0)
    engine.generate(make_request("a", range(32), max_tokens=1, session=PinRequest(session_id="s", lease_s=3)))
    assert engine.pins.num_blocks == 8
    engine.add(make_request("b", 16, max_tokens=12), make_request("c", 16, max_tokens=8))
    engine.step()
    assert engine.num_running == 1
    engine.step()
    engine.step()
    assert engine.num_running == 2 and len(engine.pins) == 0


def test_two_requests_of_one_session_leave_the_later_one():
    engine = Engine(num_blocks=64)
    engine.generate(
        make_request("a", [*range(8), 1, 2, 3, 4], max_tokens=2, session="s"),
        make_request("b", [*range(8), 5, 6, 7, 8], max_tokens=9, session="s"),
    )
    assert pinned(engine) == 20 and engine.pins.num_blocks == 5


def test_a_reset_lets_go_of_what_sessions_hold_but_not_of_what_requests_do():
    engine = Engine(num_blocks=64)
    engine.generate(make_request("a", range(12), max_tokens=1, session="s"))
    engine.add(make_request("b", 9, max_tokens=4))
    engine.step()
    assert not engine.scheduler.reset_prefix_cache() and pinned(engine) == 12
    engine.run()
    assert engine.scheduler.reset_prefix_cache() and pinned(engine) == 0
    assert engine.manager.num_cached_blocks == 0
    engine.check()


def test_without_prefix_caching_sessions_are_refused():
    engine = Engine(caching=False)
    with pytest.raises(InvalidRequestError, match="prefix caching is off"):
        engine.add(make_request("a", 9, session="s"))


# ---- whatever happens


class Chaos:
    """Many sessions of a few tenants: turns, aborts, ends, expiries, releases and resets in any order, some of the
    steps failing, with the laws checked after each."""

    def __init__(self, data, policy, ahead):
        self.data = data
        layers = data.draw(st.sampled_from([(FULL,), (FULL, WINDOWED)]))
        self.doomed = set()
        self.engine = Engine(
            num_blocks=data.draw(st.integers(20, 48)),
            layers=layers,
            max_model_len=33,
            scheduling_policy=policy,
            async_scheduling=ahead,
            max_num_batched_tokens=data.draw(st.sampled_from([5, 16, 32])),
            sub_block_match=data.draw(st.booleans()),
            max_pinned_share=data.draw(st.sampled_from([0.3, 1.0])),
            max_pinned_tokens=data.draw(st.sampled_from([0, 40])),
            admission_conservativeness=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
            tiers=data.draw(st.sampled_from([None, None, {Tier.HOST: 20}, {Tier.HOST: 8, Tier.DISK: 100}])),
            fates=random_fates(data.draw(st.integers(0, 99)), 0.3),
            lease_s=6.0,
            faults=lambda request_id, computed: "NaN logits" if request_id in self.doomed else None,
        )
        self.live, self.count, self.expected = [], 0, {}

    def run(self, num_events):
        events = [self.arrive, self.arrive, self.step, self.step, self.step, self.abort, self.end, self.pass_time]
        for _ in range(num_events):
            self.data.draw(st.sampled_from([*events, self.release, self.reset, self.doom]))()
            self.engine.check()
        self.drain()

    def arrive(self):
        draw = self.data.draw
        shared, own = draw(st.integers(0, 20)), draw(st.lists(st.integers(0, 1), min_size=1, max_size=6))
        wish = PinRequest(session_id=draw(st.sampled_from("abcd")), lease_s=draw(st.sampled_from([None, 2, 9])))
        request = make_request(
            f"r{self.count}",
            [*range(shared), *own],
            max_tokens=draw(st.integers(1, 6)),
            session=draw(st.sampled_from([None, wish])),
            tenant=draw(st.sampled_from("xy")),
            priority=draw(st.integers(0, 2)),
        )
        self.count += 1
        if request.pin is not None and self.engine.pins.max_blocks == 0:
            return
        self.engine.add(request)
        self.live.append(request)

    def step(self):
        if self.engine.scheduler.has_work or self.engine.in_flight:
            self.engine.step()
        self.live = [request for request in self.live if request.request_id not in self.engine.finished]

    def _take(self):
        return self.live.pop(self.data.draw(st.integers(0, len(self.live) - 1))) if self.live else None

    def abort(self):
        if (request := self._take()) is not None:
            self.engine.scheduler.abort(request.request_id)

    def end(self):
        if (request := self._take()) is not None:
            self.engine.scheduler.end(request.request_id, self.engine.now_s)

    def doom(self):
        if (request := self._take()) is not None:
            self.doomed.add(request.request_id)

    def pass_time(self):
        self.engine.now_s += self.data.draw(st.integers(1, 8))

    def release(self):
        draw = self.data.draw
        self.engine.pins.release(draw(st.sampled_from("xy")), draw(st.sampled_from("abcd")))

    def reset(self):
        self.engine.scheduler.reset_prefix_cache()

    def drain(self):
        """Everybody ends, with the tokens that are its own, and when all leases have ended everything is free."""
        self.engine.run()
        self.engine.drain()
        for request in self.live:
            if request.request_id not in self.doomed:
                assert self.engine.tokens[request.request_id] == alone(request, 33)
        assert self.engine.pins.num_blocks <= self.engine.pins.max_blocks
        self.engine.pins.expire(self.engine.now_s + 1000)
        self.engine.check()
        assert len(self.engine.pins) == 0
        assert self.engine.manager.num_free_blocks == self.engine.manager.num_blocks


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25)
@given(data=st.data())
def test_nothing_leaks_and_nobody_is_stuck(policy, ahead, data):
    Chaos(data, policy, ahead).run(40)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(data=st.data())
def test_nothing_leaks_over_thousands_of_pins(policy, ahead, data):
    Chaos(data, policy, ahead).run(100)


@settings(max_examples=60)
@given(
    longest=st.integers(2, 60),
    spare=st.integers(1, 20),
    layers=st.sampled_from([(FULL,), (FULL, WINDOWED), (WINDOWED,)]),
    budget=st.integers(1, 32),
    ahead=st.booleans(),
)
def test_a_longest_request_runs_to_its_end_beside_all_that_can_be_pinned(longest, spare, layers, budget, ahead):
    sizing = Engine(layers=layers, max_model_len=longest, max_num_batched_tokens=budget)
    needed = sizing.manager.blocks_per_request(longest - 1)
    engine = Engine(
        num_blocks=needed + spare,
        layers=layers,
        max_model_len=longest,
        max_num_batched_tokens=budget,
        max_pinned_share=1.0,
        async_scheduling=ahead,
    )
    for number in range(spare + 1):
        prompt = range(100 * number, 100 * number + min(longest - 1, 4 * (1 + number % 4) + 1))
        engine.generate(make_request(f"p{number}", prompt, max_tokens=1, session=f"s{number}"))
    longest_one = make_request("longest", 1, max_tokens=longest - 1)
    whole_prompt = make_request("prompt", longest - 1, max_tokens=1)
    engine.generate(longest_one, whole_prompt)
    assert engine.tokens["longest"] == alone(longest_one, longest)
    assert engine.tokens["prompt"] == alone(whole_prompt, longest)
