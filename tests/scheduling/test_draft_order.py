"""Which drafts are tried first, and what is expected of them."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduling.acceptance import Acceptance, Chances
from octavo.scheduling.draft_order import in_order

SURE = Chances(1.0, 0.8, 1.0, 0.8)
CHANCES = st.builds(
    lambda runs, right, more, further: Chances(runs, runs * right, more, more * further),
    *[st.floats(0.05, 1.0)] * 4,
)


def test_a_chain_by_itself() -> None:
    steps = list(in_order(1, 8, [(3, SURE)], 0.0))
    assert [step.tokens for step in steps] == pytest.approx([1.8, 2.44, 2.952])
    assert [step.time([0.0, 1.0, 2.0, 3.0]) for step in steps] == pytest.approx([1, 2, 3])


def test_those_first_of_which_most_is_expected() -> None:
    better, worse = Chances(1.0, 0.9, 1.0, 0.9), Chances(1.0, 0.75, 1.0, 0.5)
    assert [step.place for step in in_order(2, 6, [(8, worse), (4, better)], 0.0)] == [1, 1, 0, 1, 1, 0]


def test_it_ends_where_too_little_is_expected() -> None:
    few = Chances(1.0, 0.3, 1.0, 0.5)
    assert len(list(in_order(2, 64, [(8, few), (8, few)], 0.14))) == 4, "0.3, 0.15, and 0.075 of each"
    assert list(in_order(2, 64, [(8, few), (8, few)], 0.31)) == []


def test_silence_costs_nothing_so_it_does_not_put_back() -> None:
    """Who seldom has a draft, but then a good one, comes before who always has a bad one."""
    assert next(in_order(2, 6, [(8, SURE), (8, Chances(0.1, 0.09, 1.0, 0.9))], 0.0)).place == 1


@given(CHANCES, st.integers(1, 6), st.lists(st.floats(0.0, 1.0), min_size=7, max_size=7))
def test_time_of_a_draft_of_one_length_is_exact(chances: Chances, most: int, rises: list[float]) -> None:
    """All or nothing: as many run as are planned, or none."""
    times = [1.0 + sum(rises[:place]) for place in range(7)]
    last = list(in_order(1, most, [(most, chances._replace(next_runs=1.0))], 0.0))[-1]
    exact = times[0] + chances.first_runs * (times[most] - times[0])
    assert last.time(times) == pytest.approx(exact, rel=1e-6)


@given(st.lists(CHANCES, min_size=1, max_size=3), st.integers(1, 3))
def test_moments_of_how_many_run_are_right(everybody: list[Chances], most: int) -> None:
    """Mean and mean square, counted out over all outcomes; times that bend so are told exactly."""
    last = list(in_order(len(everybody), 64, [(most, chances) for chances in everybody], 0.0))[-1]
    lengths = [_length_chances(chances, most) for chances in everybody]
    mean = square = 0.0
    for outcome in product(range(most + 1), repeat=len(everybody)):
        chance = 1.0
        for length, chances in zip(outcome, lengths, strict=True):
            chance *= chances[length]
        mean, square = mean + chance * sum(outcome), square + chance * sum(outcome) ** 2
    assert last.chance * last.high + (1 - last.chance) * last.low == pytest.approx(mean, rel=0.05, abs=0.02)
    assert last.chance * last.high**2 + (1 - last.chance) * last.low**2 == pytest.approx(square, rel=0.1, abs=0.05)


def _length_chances(chances: Chances, most: int) -> list[float]:
    tokens, runs = chances.first_right, [1.0, max(chances.first_runs, chances.first_right)]
    for _ in range(most - 1):
        tokens *= chances.next_right
        runs.append(max(runs[-1] * chances.next_runs, tokens))
    return [here - beyond for here, beyond in zip(runs, [*runs[1:], 0.0], strict=True)]


def test_the_budget_ends_it() -> None:
    assert len(list(in_order(2, 3, [(8, SURE), (8, SURE)], 0.0))) == 3
    assert list(in_order(2, 3, [], 0.0)) == []


def test_acceptance_tells_silence_from_being_wrong() -> None:
    prior, silent, wrong = Chances(0.5, 0.4, 0.5, 0.4), Acceptance(0.97), Acceptance(0.97)
    for _ in range(200):
        silent.note(4, 0, 0)
        wrong.note(4, 4, 0)
    assert silent.chances(prior).first_runs < 0.1 and wrong.chances(prior).first_runs > 0.9
    assert silent.chances(prior).next_runs == pytest.approx(0.5)  # nothing was to be seen of it
    assert wrong.chances(prior).first_right < 0.1 and wrong.chances(prior).next_right == pytest.approx(0.4)


def test_acceptance_of_what_follows_is_counted_behind_what_was_right() -> None:
    record = Acceptance(1.0)
    for _ in range(1000):
        record.note(4, 4, 2)  # right, right, wrong
    assert record.chances(Chances(0.5, 0.5, 0.5, 0.5)) == pytest.approx((1.0, 1.0, 1.0, 0.5), abs=0.02)


def test_what_lies_long_back_gives_way_to_what_everybody_does() -> None:
    record, prior = Acceptance(0.97), Chances(0.9, 0.8, 0.9, 0.8)
    for _ in range(100):
        record.note(2, 2, 0)
    before = record.chances(prior).first_right
    record.idle = 100
    assert before < 0.2 and record.chances(prior).first_right > 0.4
