"""What is foretold of loads and of computing, from what was measured."""

import pytest

from octavo.kv.speed import FORGET_S, LoadSpeed, PrefillSpeed


def measured(bandwidth, latency_s, times=20, num_bytes=1000):
    speed = LoadSpeed()
    for i in range(times):
        seconds = num_bytes / bandwidth
        speed.measured(num_bytes, seconds, 0, seconds + latency_s, float(i))
    return speed


def test_nothing_is_foretold_before_anything_was_measured():
    assert LoadSpeed().seconds(1000, 0.0) is None
    assert PrefillSpeed().seconds(10) is None


def test_a_load_takes_latency_and_bytes_over_bandwidth():
    speed = measured(bandwidth=100.0, latency_s=2.0)
    assert speed.seconds(500, 20.0) == pytest.approx(2.0 + 5.0)
    assert speed.seconds(0, 20.0) == pytest.approx(2.0)


def test_bytes_ahead_are_no_latency():
    speed = LoadSpeed()
    speed.measured(1000, 10.0, 3000, 41.0, 0.0)
    assert speed.seconds(1000, 0.0) == pytest.approx(1.0 + 10.0)


def test_averages_follow_a_tier_that_becomes_slower():
    speed = measured(bandwidth=1000.0, latency_s=0.0)
    before = speed.seconds(1000, 20.0)
    for i in range(20):
        speed.measured(1000, 10.0, 0, 10.0, 20.0 + i)
    assert before == pytest.approx(1.0) and speed.seconds(1000, 40.0) == pytest.approx(10.0, rel=0.05)


def test_what_was_slow_long_ago_is_not_known_any_more_and_does_not_count():
    speed = measured(bandwidth=1.0, latency_s=50.0)
    later = 19.0 + FORGET_S
    assert speed.seconds(1000, later) is not None and speed.seconds(1000, later + 0.1) is None
    speed.measured(1000, 1.0, 0, 1.0, later + 1.0)
    assert speed.seconds(1000, later + 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(("num_bytes", "seconds"), [(0, 1.0), (1000, 0.0)])
def test_loads_that_moved_nothing_say_nothing(num_bytes, seconds):
    speed = LoadSpeed()
    speed.measured(num_bytes, seconds, 0, 1.0, 0.0)
    assert speed.seconds(1000, 0.0) is None


def test_prompt_tokens_are_measured_in_steps_that_run_many_of_them():
    speed = PrefillSpeed()
    speed.measured(16, 16, 0.5)
    speed.measured(31, 1, 0.5)
    speed.measured(100, 50, 0.5)
    assert speed.seconds(1) is None
    speed.measured(512, 1, 5.12)
    speed.measured(512, 9, 5.12)
    assert speed.seconds(100) == pytest.approx(1.0)
