"""Sessions: leases by an explicit clock, what is pinned, budgets and the words of refusals."""

import pytest

from octavo.errors import InvalidRequestError, PinBudgetError
from octavo.kv.manager import KVManager
from octavo.kv.pins import Pins
from octavo.request.pin import MAX_SESSIONS_PER_TENANT, PinRequest
from tests.scheduling.harness import FULL, WINDOWED, make_layout, make_request

SIZE = 4


def make(num_blocks=40, *, layers=(FULL,), longest=16, caching=True, **budget):
    layout = make_layout(num_blocks, block_size=SIZE, layers=layers)
    manager = KVManager(layout, enable_prefix_caching=caching, max_step_tokens=16, fingerprint="f")
    return manager, Pins(manager, longest + 1, **budget)


def compute(manager, tokens, *, commit=True):
    """Runs tokens through the manager as one request would; what it holds afterwards."""
    held = manager.open(list(tokens))
    manager.adopt(held, manager.match(held))
    assert manager.allocate(held, len(tokens)) is not None
    manager.issue()
    if commit:
        manager.commit()
        manager.settle(held, len(tokens))
    return held


def use(pins, session, prompt, *, now_s=0.0, tenant=""):
    """A request of a session arrives."""
    wish = PinRequest(session_id=session)
    return pins.arrive(make_request("r", prompt, session=wish, tenant=tenant), now_s)


def turn(manager, pins, session, tokens, *, now_s=0.0, tenant=""):
    """A whole request of a session; what `keep` said of it."""
    pin = use(pins, session, tokens, now_s=now_s, tenant=tenant)
    held = compute(manager, tokens)
    problem = pins.keep(pin, held, now_s)
    manager.free(held)
    pins.leave(pin)
    check(manager, pins)
    return problem


def check(manager, pins):
    manager.check()
    pins.check()


def state(pins, session, now_s=0.0, tenant=""):
    return next(one for one in pins.states(tenant, now_s) if one.session_id == session)


# ---- what is pinned


def test_full_blocks_stay_whatever_comes_and_the_rest_does_not():
    manager, pins = make(20)
    assert turn(manager, pins, "s", range(11)) == ""
    assert state(pins, "s").num_pinned_tokens == 8 and pins.num_blocks == 2
    assert manager.num_free_blocks == 18
    for other in range(30):  # the pool several times over
        manager.free(compute(manager, range(1000 + 100 * other, 1000 + 100 * other + 16)))
    assert manager.match(manager.open([*range(11), 99])).num_blocks == 2


def test_the_next_turn_takes_the_place_of_the_one_before():
    manager, pins = make()
    turn(manager, pins, "s", range(9))
    turn(manager, pins, "s", range(14))
    assert state(pins, "s").num_pinned_tokens == 12 and pins.num_blocks == 3


def test_a_beginning_of_what_is_pinned_changes_nothing():
    manager, pins = make()
    turn(manager, pins, "s", range(14))
    turn(manager, pins, "s", range(9))
    assert state(pins, "s").num_pinned_tokens == 12


def test_another_conversation_takes_the_place_even_if_it_is_shorter():
    manager, pins = make()
    turn(manager, pins, "s", range(14))
    turn(manager, pins, "s", [*range(4), 50, 51, 52, 53])
    assert state(pins, "s").num_pinned_tokens == 8 and pins.num_blocks == 2
    assert manager.match(manager.open(range(14))).num_blocks == 3, "let go of, not forgotten"


def test_windows_pin_only_what_is_needed_to_go_on():
    manager, pins = make(layers=(FULL, WINDOWED))
    turn(manager, pins, "s", range(40))
    # at border 40 a window of 8 sees positions 33 .. 39: blocks 8 and 9
    assert state(pins, "s").num_pinned_blocks == pins.num_blocks == 10 + 2
    assert manager.match(manager.open([*range(40), 99])).num_blocks == 10


def test_blocks_of_a_step_in_flight_are_not_pinned():
    manager, pins = make()
    pin = use(pins, "s", range(8))
    first = compute(manager, range(8))
    reader = manager.open([*range(12), 99])
    manager.adopt(reader, manager.match(reader))
    manager.allocate(reader, 13)
    manager.issue()
    assert pins.keep(pin, reader, 0.0) == ""
    assert pin.pinned.num_tokens == 8
    assert manager.revoke([reader]) == []  # garbage, and nobody holds it
    for held in (reader, first):
        manager.free(held)
    manager.commit()
    check(manager, pins)


def test_a_salt_is_a_part_of_what_is_pinned():
    manager, pins = make()
    pin = use(pins, "s", range(8))
    held = manager.open(list(range(8)), cache_salt="secret")
    manager.adopt(held, manager.match(held))
    manager.allocate(held, 8)
    manager.commit()
    assert pins.keep(pin, held, 0.0) == "" and pin.pinned.num_tokens == 8
    manager.free(held)
    assert manager.match(manager.open(range(9))).num_blocks == 0
    assert manager.match(manager.open(range(9), cache_salt="secret")).num_blocks == 2


def test_a_session_that_was_ended_meanwhile_pins_nothing():
    manager, pins = make()
    pin, held = use(pins, "s", range(8)), compute(manager, range(8))
    assert pins.release("", "s") and not pins.release("", "s")
    assert "ended before" in pins.keep(pin, held, 0.0)
    pins.leave(pin)
    manager.free(held)
    assert manager.num_free_blocks == manager.num_blocks
    check(manager, pins)


# ---- leases


def test_a_lease_ends_at_its_time_and_use_extends_it():
    manager, pins = make()
    pins.open("", PinRequest(session_id="s", lease_s=10), 0.0)
    turn(manager, pins, "s", range(8), now_s=6.0)
    pins.expire(15.9)
    assert len(pins) == 1 and pins.num_blocks == 2
    pins.expire(16.0)
    assert len(pins) == 0 and pins.num_blocks == 0 and manager.num_free_blocks == manager.num_blocks


def test_a_session_does_not_end_while_a_request_uses_it():
    _, pins = make()
    pins.open("", PinRequest(session_id="s", lease_s=10), 0.0)
    pin = use(pins, "s", range(8))
    pins.expire(1000.0)
    assert state(pins, "s", 1000.0).expires_in_s == 10
    pins.leave(pin)
    pins.expire(1010.0)
    assert len(pins) == 0


def test_a_lease_can_be_made_longer_and_shorter():
    _, pins = make()
    pins.open("", PinRequest(session_id="s", lease_s=10), 0.0)
    assert pins.extend("", "s", 100, 1.0).expires_in_s == 100
    pins.expire(50.0)
    assert pins.extend("", "s", 5, 50.0).lease_s == 5
    assert pins.extend("", "s", None, 52.0).expires_in_s == 5
    pins.check()
    pins.expire(57.0)
    assert pins.extend("", "s", 5, 57.0) is None


def test_deadlines_of_sessions_that_are_gone_do_not_pile_up():
    _, pins = make()
    for number in range(5000):
        pins.open("", PinRequest(session_id=f"s{number % 3}", lease_s=1000), float(number) / 100)
        pins.release("", f"s{(number + 1) % 3}")
    assert len(pins._deadlines) < 100
    pins.check()


# ---- tenants


def test_tenants_do_not_see_each_other():
    manager, pins = make()
    turn(manager, pins, "s", range(8), tenant="a")
    assert pins.states("b", 0.0) == [] and not pins.release("b", "s") and pins.extend("b", "s", 5, 0.0) is None
    turn(manager, pins, "s", range(100, 108), tenant="b")
    assert len(pins) == 2 and state(pins, "s", tenant="a").num_pinned_tokens == 8


def test_what_a_tenant_can_never_hold_is_refused_without_advice_to_wait():
    _, pins = make(24, max_tokens_per_tenant=16)
    with pytest.raises(InvalidRequestError, match=r"20 tokens takes more than the 16 .*; start with a larger one$"):
        pins.open("a", PinRequest(session_id="s"), 0.0, range(20))


def test_shared_blocks_count_once_for_all_and_for_each_tenant():
    manager, pins = make(24, max_share=0.25, max_tokens_per_tenant=16)
    assert pins.max_blocks == 6
    for tenant in "abc":
        assert turn(manager, pins, "s", range(16), tenant=tenant) == ""
    assert pins.num_blocks == 4
    problem = turn(manager, pins, "t", range(8), tenant="a")
    assert "more than the 0 that are free of the 16 that one key may hold" in problem
    assert turn(manager, pins, "t", range(8), tenant="d") == ""


# ---- budget


def test_a_longest_request_always_fits_beside_all_pins():
    for num_blocks in range(9, 40):
        manager, pins = make(num_blocks, longest=32, max_share=1.0)
        for number in range(20):
            turn(manager, pins, f"s{number}", range(100 * number, 100 * number + 8))
        assert manager.num_blocks - pins.num_blocks in (8, 9), (
            "all that may be pinned is, in whole prefixes of 2 blocks"
        )


def test_what_does_not_fit_is_refused_with_numbers_and_the_old_pin_stays():
    manager, pins = make(24, max_share=0.25)
    turn(manager, pins, "a", range(16))
    turn(manager, pins, "b", range(100, 108))
    problem = turn(manager, pins, "b", range(100, 112))
    assert "12 tokens takes 3 KV blocks of 4 tokens" in problem and "2 are free of 6 blocks" in problem
    assert "max_pinned_share=0.25 of 24" in problem and "end a session" in problem
    assert state(pins, "b").num_pinned_tokens == 8 and pins.num_blocks == 6


def test_a_prompt_that_is_to_be_pinned_is_refused_for_good_or_for_now():
    manager, pins = make(24, max_share=0.25)
    with pytest.raises(
        InvalidRequestError, match=r"28 tokens takes 7 KV blocks .* together may hold 6 blocks .* start with a larger"
    ):
        pins.open("", PinRequest(session_id="b"), 0.0, range(28))
    turn(manager, pins, "a", range(20), now_s=5.0)
    with pytest.raises(PinBudgetError, match=r"8 tokens takes 2 KV blocks .* 1 are free") as refusal:
        pins.open("", PinRequest(session_id="b"), 100.0, range(100, 108))
    assert refusal.value.retry_after_s == 600 - 95
    assert len(pins) == 1, "no session came into being"
    pins.open("", PinRequest(session_id="b"), 100.0, [*range(20), 7, 7, 7, 7])  # 5 of its 6 blocks are held already
    pins.open("", PinRequest(session_id="a"), 100.0, range(300, 324))  # it would let go of what it holds
    assert use(pins, "c", range(100, 108)) is not None, "a request is answered, with a pin or without"
    check(manager, pins)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"caching": False}, "prefix caching is off"),
        ({"num_blocks": 4}, "0 blocks .* leave the 4 that one request of max_model_len=17"),
        ({"max_share": 0.0}, "max_pinned_share=0 of 40"),
    ],
)
def test_where_nothing_can_be_pinned_sessions_are_refused(options, words):
    _, pins = make(**options)
    with pytest.raises(InvalidRequestError, match=words):
        pins.open("", PinRequest(session_id="s", lease_s=None), 0.0)
    with pytest.raises(InvalidRequestError, match=words):
        use(pins, "s", range(8))
    assert len(pins) == 0


def test_the_number_of_sessions_of_a_tenant_is_bounded():
    _, pins = make()
    for number in range(MAX_SESSIONS_PER_TENANT):
        pins.open("a", PinRequest(session_id=f"s{number}", lease_s=50), 0.0)
    with pytest.raises(PinBudgetError, match="1024 sessions"):
        pins.open("a", PinRequest(session_id="one-more", lease_s=50), 0.0)
    pins.open("a", PinRequest(session_id="s7", lease_s=50), 0.0)
    pins.open("b", PinRequest(session_id="s", lease_s=50), 0.0)


def test_all_can_be_let_go_and_sessions_stay():
    manager, pins = make()
    turn(manager, pins, "s", range(8))
    pins.let_go()
    assert manager.num_free_blocks == manager.num_blocks and state(pins, "s").num_pinned_tokens == 0
    check(manager, pins)


# ---- the words of a request


@pytest.mark.parametrize("session_id", ["", "a b", "ü", "x" * 129, 5, "a/b"])
def test_session_ids_have_a_form(session_id):
    with pytest.raises(InvalidRequestError, match="session_id"):
        PinRequest(session_id=session_id)


@pytest.mark.parametrize("lease_s", [0, -1, 1e9, float("nan"), True, "5"])
def test_leases_are_sensible(lease_s):
    with pytest.raises(InvalidRequestError, match="lease_s"):
        PinRequest(session_id="s", lease_s=lease_s)
