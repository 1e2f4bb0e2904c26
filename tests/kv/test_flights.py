"""Several steps in flight: what each published, what takes it back, and tokens that are not known yet."""

import pytest

from octavo.kv.manager import KVManager
from tests.scheduling.harness import FULL, WINDOWED, make_layout


def make_manager(num_blocks=16, *, layers=(FULL,), sub_block_match=False):
    return KVManager(make_layout(num_blocks, layers=layers), sub_block_match=sub_block_match, fingerprint="f")


def plan(manager, tokens, num_tokens=None, **options):
    """Admits a request into the step under planning."""
    held = manager.open(list(tokens), **options)
    hit = manager.match(held)
    manager.adopt(held, hit)
    assert manager.allocate(held, num_tokens or len(held.token_ids)) is not None
    manager.check()
    return held, hit


def num_hit(manager, tokens):
    return manager.match(manager.open(list(tokens))).num_tokens


def in_flight(held):
    return [block.in_flight for table in held.tables for block in table]


def test_each_commit_ends_the_flight_of_the_oldest_step():
    manager = make_manager()
    first, _ = plan(manager, range(4))
    manager.issue()
    second, _ = plan(manager, range(50, 54))
    manager.issue()
    third, _ = plan(manager, range(80, 84))
    flights = []
    for _ in range(3):
        manager.commit()
        manager.check()
        flights.append([in_flight(held)[0] for held in (first, second, third)])
    assert flights == [[False, True, True], [False, False, True], [False, False, False]]


def test_a_block_in_flight_is_shared_whole_by_the_next_step_but_not_copied():
    manager = make_manager(sub_block_match=True)
    plan(manager, range(8))
    manager.issue()
    _, hit = plan(manager, [*range(6), 99, 99])
    assert (hit.num_blocks, hit.num_tokens) == (1, 4)
    manager.withdraw(_)
    manager.commit()
    assert num_hit(manager, [*range(6), 99, 99]) == 6


def test_withdrawing_leaves_what_was_published_for_steps_in_flight():
    manager = make_manager()
    held, _ = plan(manager, range(12), 8)
    manager.issue()
    manager.allocate(held, 12)
    assert manager.num_cached_blocks == 3
    manager.withdraw(held)
    manager.check()
    assert manager.num_cached_blocks == 2
    manager.commit()
    assert num_hit(manager, range(9)) == 8


def test_what_others_hold_of_a_step_in_flight_does_not_hinder_a_withdrawal():
    manager = make_manager()
    held, _ = plan(manager, range(12), 8)
    manager.issue()
    plan(manager, range(9))
    manager.allocate(held, 12)
    assert manager.is_withdrawable(held)


def test_revoking_the_oldest_step_takes_what_the_next_one_builds_on_it():
    manager = make_manager()
    failed, _ = plan(manager, range(8))
    plan(manager, range(60, 68))
    manager.issue()
    reader, hit = plan(manager, [*range(8), *range(50, 54)])
    other, _ = plan(manager, range(80, 84))
    manager.issue()
    assert hit.num_blocks == 2
    assert manager.revoke([failed]) == [reader]
    for held in (failed, reader):
        manager.free(held)
    manager.commit()
    manager.check()
    assert num_hit(manager, range(60, 69)) == 8 and num_hit(manager, range(9)) == 0
    assert in_flight(other) == [True]
    manager.commit()
    assert manager.num_cached_blocks == 3


def test_revoking_takes_both_parts_of_a_request_that_failed_in_the_first():
    manager = make_manager()
    failed, _ = plan(manager, range(12), 4)
    manager.issue()
    manager.allocate(failed, 12)
    manager.issue()
    assert manager.revoke([failed]) == []
    manager.free(failed)
    manager.check()
    assert manager.num_cached_blocks == 0


@pytest.mark.parametrize("layers", [(FULL,), (WINDOWED,), (FULL, WINDOWED)], ids=["full", "window", "both"])
@pytest.mark.parametrize("later", [False, True], ids=["same step", "next step"])
def test_what_a_reader_of_garbage_published_goes_even_if_the_reader_has_gone(layers, later):
    """It holds nothing any more, and yet what it wrote rests on garbage."""
    manager = make_manager(layers=layers, num_blocks=32)
    failed, _ = plan(manager, range(8))
    if later:
        manager.issue()
    reader, hit = plan(manager, [*range(8), *range(50, 54)])
    assert hit.num_blocks == 2
    manager.issue()
    manager.free(reader)
    assert manager.revoke([failed]) == []
    manager.free(failed)
    manager.check()
    assert manager.num_cached_blocks == 0
    assert num_hit(manager, [*range(8), *range(50, 54), 1]) == 0


def test_a_block_is_published_once_all_its_tokens_are_known():
    """A step runs a token that is still to come from the step before: it fills a block that has no name yet."""
    manager = make_manager()
    held, _ = plan(manager, range(7))
    manager.issue()
    manager.allocate(held, 8)
    manager.issue()
    assert manager.num_cached_blocks == 1
    manager.commit()
    manager.settle(held, 7)
    held.token_ids.append(7)
    manager.check()
    assert manager.num_cached_blocks == 1
    manager.commit()
    manager.settle(held, 8)
    manager.check()
    assert num_hit(manager, range(9)) == 8


def test_a_computed_block_does_not_give_way_to_a_twin_in_flight():
    """If the twin fails, what stands behind the computed block must not hang under it."""
    manager = make_manager(num_blocks=6)
    first, _ = plan(manager, range(8))
    manager.commit()
    manager.free(first)
    held, _ = plan(manager, [*range(8), *range(50, 54)], 8, reads_cache=False)
    assert held.num_published == [0]  # its names are taken
    manager.issue()
    filler, _ = plan(manager, range(100, 116))
    manager.withdraw(filler)
    assert manager.num_evicted == 2
    twin, hit = plan(manager, [*range(8), 77])
    assert hit.num_blocks == 0
    manager.issue()
    manager.commit()
    manager.settle(held, 8)
    manager.check()
    assert held.num_published == [0] and not held.swaps
    manager.allocate(held, 12)
    manager.issue()
    manager.commit()
    manager.settle(twin, 9)
    manager.commit()
    manager.settle(held, 12)
    manager.check()
    assert [position for _, position, _ in held.swaps] == [0, 1] and held.num_published == [3]


def test_the_cache_can_be_reset_while_a_step_of_nobody_is_in_flight():
    manager = make_manager()
    held, _ = plan(manager, range(8))
    manager.issue()
    manager.free(held)
    assert manager.reset_prefix_cache()
    manager.check()
    manager.commit()
    assert manager.num_cached_blocks == 0
