"""The arithmetic of comparisons, on values that can be worked out by hand."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairing import coverage, estimate, paired_ratios, rotated


def test_five_rounds_give_the_whole_range_and_its_real_coverage() -> None:
    result = estimate([3.0, 1.0, 5.0, 4.0, 2.0])
    assert (result.median, result.low, result.high, result.rounds) == (3, 1, 5, 5)
    assert result.coverage == 1 - 2 / 2**5


def test_more_rounds_narrow_the_interval() -> None:
    result = estimate([float(value) for value in range(1, 21)])
    assert result.median == 10.5
    assert (result.low, result.high) == (6, 15)
    assert result.coverage == pytest.approx(1 - 2 * sum(comb(20, i) for i in range(6)) / 2**20)
    assert coverage(20, 7) < 0.9 <= result.coverage


def test_a_single_round_says_that_it_proves_nothing() -> None:
    result = estimate([2.0])
    assert (result.median, result.low, result.high, result.coverage) == (2, 2, 2, 0)


def test_ratios_are_taken_round_by_round() -> None:
    assert paired_ratios([2.0, 6.0, 9.0], [1.0, 2.0, 3.0]) == [2, 3, 3]
    assert paired_ratios([2.0, None, 9.0], [1.0, 2.0, None]) == [2]
    with pytest.raises(ValueError, match="shorter"):
        paired_ratios([1.0, 2.0], [1.0])


def test_every_engine_begins_once() -> None:
    assert [rotated("abc", by) for by in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40), st.floats(0.5, 0.99))
def test_the_interval_is_the_narrowest_that_covers(values: list[float], confidence: float) -> None:
    result, count = estimate(values, confidence), len(values)
    assert result.low <= result.median <= result.high
    rank = max(k for k in range(1, count + 1) if sorted(values)[k - 1] == result.low)
    assert result.coverage >= min(confidence, coverage(count, 1))
    assert rank == count or coverage(count, rank + 1) < max(confidence, result.coverage)


@given(st.integers(1, 30))
def test_coverage_falls_as_the_interval_narrows(count: int) -> None:
    ranks = range(1, (count + 1) // 2 + 1)
    covered = [coverage(count, rank) for rank in ranks]
    assert covered == sorted(covered, reverse=True)
    assert all(0 <= chance <= 1 for chance in covered)
