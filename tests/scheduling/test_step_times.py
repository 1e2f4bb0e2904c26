"""What steps cost by their drafts, learned from noisy times."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduling.draft_costs import DraftCosts, crowd_of
from octavo.scheduling.step_times import UNKNOWN, StepTimes

MOST = 16


def times_of(*steps: tuple[int, float], num_requests: int = 4) -> StepTimes:
    times = StepTimes(num_requests, MOST)
    for size, seconds in steps:
        times.add(size, seconds)
    return times


def relative(times: StepTimes) -> list[float]:
    return [seconds / times.sure()[0] for seconds in times.sure()]


def test_between_sizes_a_straight_line_and_beyond_them_nothing() -> None:
    curve = relative(times_of(*[(0, 2.0), (4, 4.0), (6, 5.0)] * 20))
    assert curve[:7] == pytest.approx([1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5])
    assert min(curve[7:]) > 1e8 and len(curve) == MOST + 1


def test_what_ran_once_is_drawn_to_the_line_and_what_ran_often_is_not() -> None:
    """Stairs are learned; a single time that is unlike all others is not."""
    others = [(size, 1 + size / 10) for size in range(0, 7, 2)] * 8
    once = relative(times_of(*others, (8, 3.6)))[8]
    often = relative(times_of(*others, *[(8, 3.6)] * 40))[8]
    assert 1.8 < once < 3.0 < often < 3.7


def test_what_a_draft_takes_is_told_in_seconds_once_some_have_run_twice() -> None:
    times = times_of(*[(0, 2.0)] * 8)
    assert times.seconds_per_draft() is None and times.rise(4) == 0.0
    for _ in range(30):
        times.add(4, 3.0)
    assert times.seconds_per_draft() == pytest.approx(0.25, rel=0.1)


def test_nobody_hopes_for_less_than_half_of_what_drafts_take_elsewhere() -> None:
    times = times_of(*[(0, 2.0)] * 8)
    times.expect_rise(0.1)
    hopes = [seconds / times.sure()[0] for seconds in times.hopeful()[:5]]
    assert hopes == pytest.approx([1.0, 1.05, 1.1, 1.15, 1.2], rel=0.03)


@given(st.lists(st.tuples(st.integers(0, MOST), st.floats(1e-3, 1e3)), min_size=1))
def test_never_falls_and_never_hopes_for_less_than_is_sure(steps: list[tuple[int, float]]) -> None:
    times = times_of(*steps)
    sure, hopeful = times.sure(), times.hopeful()
    assert sure == sorted(sure)
    assert all(hope <= known * (1 + 1e-9) for hope, known in zip(hopeful, sure, strict=True) if known < UNKNOWN)


def test_one_disturbed_step_lifts_nothing_beyond_it() -> None:
    steps = [(size, 1.0 + size / 100) for size in range(MOST + 1) for _ in range(4)]
    times = times_of(*steps, (3, 50.0))
    assert max(relative(times)) < 1.25
    first_is_disturbed = times_of((0, 1.0), (0, 1.0), (8, 50.0), (8, 1.1))
    assert relative(first_is_disturbed)[8] == pytest.approx(1.1)


def test_noise_averages_out() -> None:
    chances = random.Random(3)
    times = StepTimes(4, MOST)
    for step in range(3000):
        size = step % 9
        times.add(size, (1 + size / 8) * chances.gauss(1, 0.1) * (5 if chances.random() < 0.01 else 1))
    assert relative(times)[:9] == pytest.approx([1 + size / 8 for size in range(9)], rel=0.06)


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_a_size_that_seldom_runs_keeps_pace_with_what_makes_all_slower(factor: float) -> None:
    """Contexts grow, so everything takes longer: a step without drafts, too, although few run."""
    times = times_of(*[(0, 1.0)] * 20, *[(8, 2.0)] * 40)
    for step in range(1024):
        slower = factor ** (step / 1024)
        times.add(8, 2.0 * slower)
        if step % 64 == 63:
            times.add(0, slower)
    assert relative(times)[8] == pytest.approx(2.0, rel=0.15)


def test_hopes_reach_half_into_a_gap_and_as_far_again_as_was_seen() -> None:
    times = times_of(*[(0, 1.0)] * 2, *[(4, 2.0)] * 2)
    hopes = [round(seconds / times.sure()[0], 2) for seconds in times.hopeful()]
    assert hopes[1:4] == [1.0, 1.0, 1.75]
    assert hopes[5:13] == [2.0] * 8 and hopes[13] > 1e8


def test_a_size_that_ran_once_is_not_believed_to_be_bad() -> None:
    times = times_of(*[(0, 1.0)] * 2, (4, 9.0))
    assert times.hopeful()[4] == times.sure()[0] < times.sure()[4]


def test_sizes_that_have_not_run_for_long_are_forgotten_but_for_none() -> None:
    times = times_of(*[(0, 1.0)] * 2, *[(4, 9.0)] * 2, *[(1, 1.0)] * 5000)
    assert times.num_times(4) == 0 < times.num_times(0)


def test_crowds_are_never_twice_as_large_as_the_smallest_of_them() -> None:
    assert [crowd_of(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 256)] == [
        1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 16, 16, 24, 256,
    ]  # fmt: skip


def test_trials_are_charged_what_they_lost_and_wait_for_credit() -> None:
    costs = DraftCosts(4, MOST)
    for _ in range(8):
        costs.measured(0, 1.0)
    assert costs.may_try
    costs.begin_trial(1.0)
    assert not costs.may_try  # the step is under way
    costs.measured(8, 6.0)
    assert not costs.may_try  # it has lost five steps
    for _ in range(2000):
        costs.measured(0, 1.0)
    assert costs.may_try


def test_nothing_could_pay_where_a_row_more_costs_as_much_as_a_row() -> None:
    costs = DraftCosts(4, MOST)
    assert not costs.could_pay(4, 0.02)
    for _ in range(20):
        costs.measured(0, 1.0)
    assert costs.could_pay(4, 0.02)
    for size in range(1, MOST + 1):
        for _ in range(20):
            costs.measured(size, 1 + size / 4)
    assert not costs.could_pay(4, 0.02) and costs.could_pay(2, 0.02)
