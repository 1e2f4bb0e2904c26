"""The arrays of a step, made in one native call, against the same arrays made with NumPy; and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo._native import SlotTable

SLOTS, MAX_LEN, GROUPS, BLOCK = 5, 33, 2, 4
WIDTH = -(-MAX_LEN // BLOCK)
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 1000, (SLOTS, MAX_LEN), np.int32)
TABLES = RNG.integers(1, 500, (GROUPS, SLOTS, WIDTH), np.int32)

entries = st.tuples(st.integers(0, MAX_LEN - 1), st.integers(1, MAX_LEN), st.booleans()).map(
    lambda e: (e[0], min(e[1], MAX_LEN - e[0]), e[2])
)
plans = st.permutations(range(SLOTS)).flatmap(
    lambda slots: st.lists(entries, min_size=1, max_size=SLOTS).map(lambda plan: list(zip(slots, plan, strict=False)))
)


def make_table(known: list[int] | None = None) -> tuple[SlotTable, np.ndarray, np.ndarray]:
    tokens, num_tokens = TOKENS.copy(), np.array(known or [MAX_LEN] * SLOTS, np.int32)
    return SlotTable(tokens, num_tokens, TABLES, BLOCK), tokens, num_tokens


@given(plan=plans)
def test_arrays_equal_those_made_with_numpy(plan: list[tuple[int, tuple[int, int, bool]]]) -> None:
    slots = np.array([slot for slot, _ in plan])
    computed, scheduled = (np.array([entry[i] for _, entry in plan]) for i in (0, 1))
    context = computed + scheduled
    ends = np.array([entry[2] for _, entry in plan])
    known = [MAX_LEN + 1] * SLOTS
    for slot, end, ends_here in zip(slots, context, ends, strict=True):
        known[slot] = int(end) if ends_here else int(end) + 1
    table, _, _ = make_table(known)
    made = table.assemble(slots.tolist(), tuple(scheduled.tolist()), tuple(computed.tolist()))

    starts = np.concatenate([[0], np.cumsum(scheduled)])
    sequence = np.repeat(np.arange(len(slots)), scheduled)
    positions = np.arange(starts[-1]) + (computed - starts[:-1])[sequence]
    rows = slots[sequence]
    expected = (
        TOKENS[rows, positions],
        positions,
        starts,
        context,
        TABLES[:, slots, : -(-context.max() // BLOCK)],
        TABLES[:, rows, positions // BLOCK] * BLOCK + positions % BLOCK,
        (starts[1:] - 1)[ends],
        np.flatnonzero(ends),
        slots[ends],
        np.full(ends.sum(), -1),
    )
    for array, other in zip(made, expected, strict=True):
        assert array.dtype == np.int32
        np.testing.assert_array_equal(array, other)


def test_tokens_are_appended_but_for_failed_rows() -> None:
    table, tokens, num_tokens = make_table([3, 4, 5, 6, 7])
    table.append(np.array([4, 0, 2], np.int32), np.array([70, -1, 50], np.int32))
    assert num_tokens.tolist() == [3, 4, 6, 6, 8]
    assert (tokens[4, 7], tokens[2, 5]) == (70, 50)
    assert tokens[0, 3] == TOKENS[0, 3]


@pytest.mark.parametrize(
    ("slots", "scheduled", "computed", "problem"),
    [
        ([], (), (), "the plan holds no request"),
        ([0], (1, 1), (0,), "differ in length"),
        ([0, SLOTS], (1, 1), (0, 0), f"entry 1 of the plan: no slot {SLOTS}"),
        ([-1], (1,), (0,), "entry 0 of the plan: no slot -1"),
        ([0], (0,), (3,), "nothing is scheduled"),
        ([0], (4,), (MAX_LEN - 3,), f"its context exceeds {MAX_LEN} tokens"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(
    slots: list[int], scheduled: tuple[int, ...], computed: tuple[int, ...], problem: str
) -> None:
    table, _, _ = make_table()
    with pytest.raises(ValueError, match=problem):
        table.assemble(slots, scheduled, computed)


def test_a_full_slot_takes_no_more_tokens() -> None:
    table, _, _ = make_table()
    with pytest.raises(ValueError, match="no room"):
        table.append(np.array([1], np.int32), np.array([1], np.int32))


def test_arrays_of_different_numbers_of_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="number of slots"):
        SlotTable(TOKENS.copy(), np.zeros(SLOTS + 1, np.int32), TABLES, BLOCK)
