"""When dialogues begin: exact rates, distributions with fixed seeds, ramps against their integrals."""

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.load.arrivals import exponential_ramp, linear_ramp, recorded, steady, unit_times
from octavo.bench.load.dialogue import Dialogue, Turn, with_hang_ups
from octavo.bench.load.schedule import schedule
from octavo.bench.load.settings import ArrivalSettings
from octavo.errors import ConfigError

INF = float("inf")
counts = st.integers(1, 200)
rates = st.floats(0.01, 1000)


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise([0.0, *times])]


@given(counts, st.sampled_from([0.25, 1.0, 8.0, INF]), st.integers(0, 9))
def test_the_rate_is_exact_and_the_seed_decides(count: int, burstiness: float, seed: int) -> None:
    times = unit_times(count, burstiness, seed)
    assert times == sorted(times)
    assert len(times) == count
    assert times[-1] == count
    assert times[0] > 0
    assert times == unit_times(count, burstiness, seed)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_are_gamma_distributed(burstiness: float) -> None:
    """Mean 1, variance 1 / shape, and skewness 2 / sqrt(shape), each within five standard errors; and apart from the
    shape nothing is left of one gap in the next."""
    count = 40_000
    found = gaps(unit_times(count, burstiness, seed=1))
    variance = statistics.pvariance(found, 1.0)
    assert statistics.fmean(found) == pytest.approx(1.0, abs=1e-12)
    kurtosis = 3 + 6 / burstiness
    assert variance * burstiness == pytest.approx(1.0, abs=5 * math.sqrt((kurtosis - 1) / count))
    skewness = statistics.fmean((gap - 1) ** 3 for gap in found) / variance**1.5
    assert skewness == pytest.approx(2 / math.sqrt(burstiness), rel=0.15)
    correlation = statistics.fmean((a - 1) * (b - 1) for a, b in pairwise(found)) / variance
    assert abs(correlation) < 5 / math.sqrt(count)


def test_poisson_gaps_are_exponential() -> None:
    """Kolmogorov-Smirnov at 0.1 %."""
    count = 10_000
    found = sorted(gaps(unit_times(count, 1.0, seed=3)))
    distance = max(abs((rank + 0.5) / count - (1 - math.exp(-gap))) for rank, gap in enumerate(found))
    assert distance < 1.95 / math.sqrt(count)


def test_seeds_differ() -> None:
    assert unit_times(10, 1.0, 0) != unit_times(10, 1.0, 1)


def test_constant_gaps() -> None:
    assert [steady(4.0)(time) for time in unit_times(4, INF, 0)] == [0.25, 0.5, 0.75, 1.0]


@given(counts, rates, rates)
def test_a_linear_ramp_inverts_its_integral(count: int, start: float, end: float) -> None:
    pace = linear_ramp(count, start, end)
    duration = 2 * count / (start + end)
    assert pace(count) == pytest.approx(duration)
    for arrivals in (count / 3, count / 2, float(count)):
        time = pace(arrivals)
        assert start * time + (end - start) / duration * time * time / 2 == pytest.approx(arrivals)


@given(counts, rates, rates)
def test_an_exponential_ramp_inverts_its_integral(count: int, start: float, end: float) -> None:
    pace = exponential_ramp(count, start, end)
    growth = (end - start) / count
    for arrivals in (count / 3, float(count)):
        time = pace(arrivals)
        expected = start * time if growth == 0 else start * math.expm1(growth * time) / growth
        assert expected == pytest.approx(arrivals, rel=1e-6)
    assert start * math.exp(growth * pace(count)) == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize("ramp", [linear_ramp, exponential_ramp])
def test_a_ramp_that_does_not_rise_is_steady(ramp: object) -> None:
    assert callable(ramp)
    assert [ramp(8, 4.0, 4.0)(n) for n in (1.0, 8.0)] == [0.25, 2.0]


def test_recorded_times_begin_at_the_first() -> None:
    assert recorded([10.0, 10.5, 12.0], 2.0) == [0.0, 1.0, 4.0]


DIALOGUES = [Dialogue((Turn("a"),)) for _ in range(4)]
TIMED = [Dialogue((Turn("a"),), at_s=n * 2.0) for n in range(4)]


def test_which_schedule_there_is() -> None:
    assert schedule(ArrivalSettings(), DIALOGUES, 0) == [0.0] * 4
    assert schedule(ArrivalSettings(max_concurrency=2), DIALOGUES, 0) is None
    assert schedule(ArrivalSettings(max_concurrency=2), TIMED, 0) == [0.0, 2.0, 4.0, 6.0]
    assert schedule(ArrivalSettings(request_rate=2, burstiness=INF), TIMED, 0) == [0.5, 1.0, 1.5, 2.0]
    assert schedule(ArrivalSettings(request_rate=INF, max_concurrency=2), TIMED, 0) == [0.0] * 4


@pytest.mark.parametrize(
    ("settings", "dialogues", "message"),
    [
        (ArrivalSettings(burstiness=2), DIALOGUES, "burstiness=2: has no effect"),
        (ArrivalSettings(time_scale=2), DIALOGUES, "time_scale=2: has no effect"),
        (ArrivalSettings(time_scale=2, request_rate=1), TIMED, "time_scale=2: has no effect with"),
    ],
)
def test_settings_without_effect_are_refused(
    settings: ArrivalSettings, dialogues: list[Dialogue], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        schedule(settings, dialogues, 0)


def test_hang_ups_are_drawn_by_the_seed() -> None:
    dialogues = [Dialogue((Turn("a", 8), Turn("b", 1)))] * 500
    drawn = with_hang_ups(dialogues, 0.25, seed=2)
    assert drawn == with_hang_ups(dialogues, 0.25, seed=2) != with_hang_ups(dialogues, 0.25, seed=3)
    first = [dialogue.turns[0].hang_up_after for dialogue in drawn]
    assert {after for after in first if after is not None} == set(range(1, 8))
    assert 90 < sum(after is not None for after in first) < 160
    assert {dialogue.turns[1].hang_up_after for dialogue in drawn} == {None, 1}
    assert with_hang_ups(dialogues, 0.0, seed=2) == dialogues
