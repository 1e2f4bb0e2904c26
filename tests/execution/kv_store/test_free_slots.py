"""The lowest free slot is taken first, and slots that nobody has taken cost nothing."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from octavo.execution.kv_store.free_slots import FreeSlots


@given(st.integers(0, 12), st.data())
def test_the_lowest_free_slot_is_taken(num_slots: int, data: st.DataObject) -> None:
    taken = data.draw(st.sets(st.integers(0, num_slots - 1)) if num_slots else st.just(set()))
    slots, free = FreeSlots(num_slots, taken), set(range(num_slots)) - taken
    for takes in data.draw(st.lists(st.booleans(), max_size=40)):
        if takes:
            slot = slots.take()
            assert slot == min(free, default=None)
            free.discard(slot)  # type: ignore[arg-type]
        elif len(free) < num_slots:
            slot = data.draw(st.sampled_from(sorted(set(range(num_slots)) - free)))
            slots.give_back(slot)
            free.add(slot)
        assert len(slots) == len(free)


def test_slots_that_were_never_taken_are_not_listed() -> None:
    slots = FreeSlots(2**40)
    assert len(slots) == 2**40 and slots.take() == 0
    assert sys.getsizeof(slots._returned) < 1000
