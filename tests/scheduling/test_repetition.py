"""Answers that repeat themselves: the detector against its definition, and the ends that it brings about."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.request.repetition import MAX_PATTERN_SIZE, RepetitionDetection
from octavo.scheduling.repetition import RepetitionDetector


def repeats(token_ids: list[int], detection: RepetitionDetection) -> bool:
    """The definition, looked up at the end of a list."""
    for size in range(max(1, detection.min_pattern_size), detection.max_pattern_size + 1):
        pattern = token_ids[-size:]
        if token_ids[-size * detection.min_count :] == pattern * detection.min_count:
            return True
    return False


def first_repetition(token_ids: list[int], detection: RepetitionDetection) -> int | None:
    """Tokens up to the first repetition, by the definition."""
    counts = (n for n in range(1, len(token_ids) + 1) if repeats(token_ids[:n], detection))
    return next(counts, None)


def found_at(token_ids: list[int], detection: RepetitionDetection) -> list[int]:
    detector = RepetitionDetector(detection)
    return [n for n, token_id in enumerate(token_ids, 1) if detector.push(token_id)]


detections = st.builds(
    lambda low, more, count: RepetitionDetection(min_pattern_size=low, max_pattern_size=low + more, min_count=count),
    st.integers(0, 5),
    st.integers(1, 6),
    st.integers(2, 4),
)


@given(token_ids=st.lists(st.integers(0, 2), max_size=80), detection=detections)
def test_each_token_as_the_definition_says(token_ids: list[int], detection: RepetitionDetection) -> None:
    want = [n for n in range(1, len(token_ids) + 1) if repeats(token_ids[:n], detection)]
    assert found_at(token_ids, detection) == want


@given(token_ids=st.lists(st.integers(0, 1), max_size=60), detection=detections, cut=st.integers(0, 60))
def test_a_detector_goes_on_from_any_token(token_ids: list[int], detection: RepetitionDetection, cut: int) -> None:
    later = RepetitionDetector(detection, token_ids[:cut])
    assert [later.push(i) for i in token_ids[cut:]] == [
        repeats(token_ids[: n + 1], detection) for n in range(min(cut, len(token_ids)), len(token_ids))
    ]


@pytest.mark.parametrize(
    ("size", "count", "more"),
    [*product((1, 2, 3, 17), (2, 3, 5), (0, 4))],
)
def test_a_pattern_is_found_with_the_last_token_of_its_last_copy(size: int, count: int, more: int) -> None:
    chance = random.Random(size)
    before, pattern = [chance.randrange(10**6) for _ in range(40)], list(range(size))
    detection = RepetitionDetection(min_pattern_size=size, max_pattern_size=size + more, min_count=count)
    assert first_repetition(before + pattern * 9, detection) == 40 + size * count
    assert found_at(before + pattern * 9, detection)[0] == 40 + size * count


def test_a_shorter_pattern_repeated_is_a_longer_one_too() -> None:
    """Four of one token are two copies of a pattern of two."""
    assert found_at([7] * 4, RepetitionDetection(min_pattern_size=2, max_pattern_size=2, min_count=2)) == [4]


def test_no_size_finds_nothing() -> None:
    assert found_at([1] * 50, RepetitionDetection()) == []


def test_a_token_costs_no_more_than_the_largest_pattern() -> None:
    """What the detector keeps is bounded, whatever the answer's length."""
    detector = RepetitionDetector(
        RepetitionDetection(min_pattern_size=MAX_PATTERN_SIZE, max_pattern_size=MAX_PATTERN_SIZE, min_count=2**31 - 1)
    )
    for position in range(5000):
        detector.push(position % 3)
    assert len(detector._window) == MAX_PATTERN_SIZE
    assert sum(len(places) for places in detector._places.values()) == MAX_PATTERN_SIZE
    assert len(detector._runs) <= 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_pattern_size": -1}, "max_pattern_size"),
        ({"max_pattern_size": MAX_PATTERN_SIZE + 1, "min_count": 2}, "max_pattern_size"),
        ({"max_pattern_size": 3, "min_pattern_size": 4, "min_count": 2}, "min_pattern_size"),
        ({"max_pattern_size": 3, "min_count": 1}, "min_count"),
        ({"max_pattern_size": 3, "min_count": True}, "min_count"),
        ({"max_pattern_size": 2.0, "min_count": 2}, "max_pattern_size"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(fields: dict[str, int], named: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        RepetitionDetection(**fields)
    assert caught.value.field == f"repetition_detection.{named}"
