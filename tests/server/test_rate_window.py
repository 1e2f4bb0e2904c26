"""The sliding window against a plain list of all that was ever used."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.server.rate_window import CELLS, RateWindow


def window(limit: int) -> RateWindow:
    return RateWindow(limit, memoryview(bytearray(8 * CELLS)).cast("q"))


STEPS = st.lists(st.tuples(st.floats(0, 45), st.integers(0, 12)), min_size=1, max_size=60)


@given(steps=STEPS, limit=st.integers(1, 20), begin=st.floats(0, 1e6))
def test_no_60_seconds_hold_more_than_the_limit(steps: list[tuple[float, int]], limit: int, begin: float) -> None:
    used, log, now = window(limit), list[tuple[float, int]](), begin
    for pause, amount in steps:
        now += pause
        if amount <= limit and used.wait_s(amount, now) == 0:
            used.add(amount, now)
            log.append((now, amount))
        within = sum(amount for when, amount in log if when > now - 60)
        lately = sum(amount for when, amount in log if when > now - 60.25)
        assert within <= used.used(now) <= lately, "never forgotten early, at most a quarter of a second late"
        assert within <= limit
        assert used.remaining(now) == limit - used.used(now)


@given(steps=STEPS, limit=st.integers(1, 20), begin=st.floats(0, 1e6), amount=st.integers(1, 40))
def test_after_the_wait_it_fits_and_not_before(
    steps: list[tuple[float, int]], limit: int, begin: float, amount: int
) -> None:
    used, now = window(limit), begin
    for pause, some in steps:
        now += pause
        used.add(some, now)  # more than the limit, too: answers are not cut
    wait = used.wait_s(amount, now)
    assert used.wait_s(amount, now + wait + 1e-6) == 0
    if wait:
        assert used.wait_s(amount, now + wait - 0.01) > 0
        assert 0 < wait <= 60.25
    reset = used.reset_s(now)
    assert used.used(now + reset + 1e-6) == 0
    assert reset >= wait


@given(steps=STEPS, later=st.floats(0, 200))
def test_giving_back_undoes(steps: list[tuple[float, int]], later: float) -> None:
    used, plain, now = window(5), window(5), 0.0
    for pause, amount in steps:
        now += pause
        used.add(amount, now)
        plain.add(amount, now)
    slot = used.add(7, now)
    used.add(3, now + later)
    plain.add(3, now + later)
    used.give_back(7, slot)
    assert used.used(now + later) == plain.used(now + later)


def test_a_long_silence_forgets_all() -> None:
    used = window(3)
    used.add(3, 10.0)
    assert used.remaining(10.0) == 0
    assert used.remaining(1e9) == 3
    assert used.reset_s(1e9) == 0
