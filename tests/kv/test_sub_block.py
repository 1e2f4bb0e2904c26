"""Hits that end inside a block: what is found, what is copied, and when not. Blocks hold 4 tokens unless said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.blocks import Block
from octavo.kv.children import Children, common_tokens
from octavo.kv.hashing import BlockHasher
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec, RecurrentSpec
from tests.scheduling.harness import FULL, WINDOWED, make_layout

FULL_TOO = AttentionSpec(num_kv_heads=2, head_dim=2)


def make_manager(num_blocks=16, *, layers=(FULL,), block_size=4, **options):
    return KVManager(make_layout(num_blocks, layers=layers, block_size=block_size), fingerprint="f", **options)


def start(manager, tokens, *, commit=True, **options):
    """Admits a request and runs all its tokens in one step."""
    held = manager.open(list(tokens), **options)
    hit = manager.match(held)
    manager.adopt(held, hit)
    assert manager.allocate(held, len(held.token_ids)) is not None
    manager.check()
    if commit:
        land(manager, held)
    return held, hit


def land(manager, held):
    manager.settle(held, len(held.token_ids))
    manager.commit()
    manager.check()


def hit_of(manager, tokens, **options):
    return manager.match(manager.open(list(tokens), **options))


# ---- the closest child


tokens = st.lists(st.integers(0, 2), min_size=4, max_size=4).map(tuple)


@given(st.sets(tokens, max_size=20), st.lists(st.integers(0, 2), max_size=4))
def test_the_closest_child_is_one_that_shares_most_leading_tokens(all_tokens, wanted):
    children = Children()
    for i, token_ids in enumerate(sorted(all_tokens, key=hash)):
        block = Block(i)
        block.parent_key, block.tokens = b"parent", BlockHasher.pack(token_ids)
        children.add(block)

    def shared(token_ids):
        return next(
            (i for i, pair in enumerate(zip(token_ids, wanted, strict=False)) if pair[0] != pair[1]), len(wanted)
        )

    most = max(map(shared, all_tokens), default=0)
    found = children.closest(b"parent", BlockHasher.pack(wanted))
    assert (0 if found is None else found[1]) == most
    if found is not None:
        assert common_tokens(found[0].tokens, BlockHasher.pack(wanted)) == most
    assert children.closest(b"other parent", BlockHasher.pack(wanted)) is None


@pytest.mark.parametrize("token_id", [0, 255, 256, 2**31, 2**32 - 1])
def test_tokens_count_whole_whatever_bytes_they_share(token_id):
    first, second = BlockHasher.pack([5, token_id]), BlockHasher.pack([5, token_id ^ 2**16])
    assert (common_tokens(first, second), common_tokens(first, first)) == (1, 2)


def test_a_child_that_is_not_there_cannot_be_removed():
    children, there, lost = Children(), Block(1), Block(2)
    for block in (there, lost):
        block.parent_key, block.tokens = b"p", b"1234"
    children.add(there)
    with pytest.raises(RuntimeError, match="not among the children"):
        children.remove(lost)
    children.remove(there)
    assert len(children) == 0 and not children._siblings


# ---- what is found


@pytest.mark.parametrize(
    ("num_tokens", "num_hit"), [(1, 0), (3, 0), (4, 3), (5, 4), (7, 4), (8, 7), (9, 8), (12, 11), (13, 12)]
)
def test_a_hit_is_at_most_n_minus_1_tokens(num_tokens, num_hit):
    """A fully cached prompt recomputes its last token; what lies in a block that never got full is not found."""
    manager = make_manager()
    first, _ = start(manager, range(num_tokens))
    manager.free(first)
    assert hit_of(manager, range(num_tokens)).num_tokens == num_hit


@pytest.mark.parametrize("num_shared", range(2000, 2017))
def test_shared_tokens_are_found_one_by_one(num_shared):
    manager = make_manager(400, block_size=16)
    start(manager, [*range(num_shared), *range(5000, 5600)])
    hit = hit_of(manager, [*range(num_shared), *range(9000, 9500)])
    assert hit.num_tokens == num_shared and hit.num_blocks == num_shared // 16


def test_first_blocks_are_children_of_the_root():
    manager = make_manager()
    start(manager, [1, 2, 3, 4, 5])
    assert hit_of(manager, [1, 2, 9, 9, 9]).num_tokens == 2
    assert hit_of(manager, [1, 2]).num_tokens == 1


@pytest.mark.parametrize(("mine", "theirs"), [(None, "a"), ("a", None), ("a", "b"), ("", None)])
def test_nothing_is_copied_across_salts(mine, theirs):
    manager = make_manager()
    start(manager, range(9), cache_salt=mine)
    assert hit_of(manager, [0, 1, 99], cache_salt=theirs).num_tokens == 0
    assert hit_of(manager, [*range(6), 99, 99], cache_salt=theirs).num_tokens == 0
    assert hit_of(manager, [*range(6), 99, 99], cache_salt=mine).num_tokens == 6


def test_of_several_children_the_one_that_shares_most_is_taken():
    manager = make_manager()
    for tail in ([10, 11, 12, 13], [10, 11, 20, 21], [10, 30, 31, 32], [40, 41, 42, 43]):
        start(manager, [0, 1, 2, 3, *tail])
    for wanted, num_shared in (([10, 11, 12, 9], 3), ([10, 11, 20, 9], 3), ([10, 9], 1), ([40, 41, 42], 2), ([9], 0)):
        assert hit_of(manager, [0, 1, 2, 3, *wanted, 99] if len(wanted) < 3 else [0, 1, 2, 3, *wanted]).num_tokens == (
            4 + num_shared
        )


def test_blocks_of_a_step_in_flight_are_shared_whole_and_never_copied():
    manager = make_manager()
    first, _ = start(manager, range(8), commit=False)
    assert hit_of(manager, [*range(6), 99]).num_tokens == 4
    land(manager, first)
    assert hit_of(manager, [*range(6), 99]).num_tokens == 6


def test_a_block_in_flight_hides_no_computed_one():
    """It shares more tokens, but the older one can be copied now."""
    manager = make_manager()
    start(manager, [0, 1, 2, 3, 10, 11, 12, 13])
    start(manager, [0, 1, 2, 3, 10, 11, 20, 20], commit=False)
    hit = hit_of(manager, [0, 1, 2, 3, 10, 11, 20, 99])
    assert hit.num_tokens == 6


def test_withdrawn_and_evicted_and_forgotten_blocks_are_not_copied():
    manager = make_manager(num_blocks=3)
    held, _ = start(manager, range(8), commit=False)
    manager.withdraw(held)
    assert hit_of(manager, [0, 1, 99]).num_tokens == 0
    held, _ = start(manager, range(8))
    manager.free(held)
    other, _ = start(manager, range(100, 112))  # takes all three
    assert manager.num_evicted == 2
    assert hit_of(manager, [0, 1, 99]).num_tokens == 0
    manager.free(other)
    assert manager.reset_prefix_cache()
    assert hit_of(manager, [100, 101, 99]).num_tokens == 0


def test_requests_that_read_no_cache_copy_nothing_and_without_caching_there_is_nothing():
    manager = make_manager()
    start(manager, range(9))
    assert hit_of(manager, [0, 1, 99], reads_cache=False).num_tokens == 0
    off = make_manager(enable_prefix_caching=False)
    start(off, range(9))
    assert hit_of(off, [0, 1, 99]).num_tokens == 0


def test_it_can_be_switched_off():
    manager = make_manager(sub_block_match=False)
    start(manager, range(9))
    assert hit_of(manager, [*range(6), 99]).num_tokens == 4


# ---- groups


@pytest.mark.parametrize("layers", [(FULL, FULL_TOO), (WINDOWED, FULL), (FULL, WINDOWED, WINDOWED)])
def test_copies_happen_in_every_group(layers):
    manager = make_manager(40, layers=layers)
    first, _ = start(manager, range(12))
    second, hit = start(manager, [*range(10), 99, 99], commit=False)
    assert hit.num_tokens == 10
    copies = second.copies()
    assert [group for group, _, _, _ in copies] == list(range(len(layers)))
    for group, source, target, num_tokens in copies:
        assert (source, target) == (first.tables[group][2].id, second.tables[group][2].id)
        assert source != target and num_tokens == 2


def test_a_group_that_lost_the_block_prevents_the_copy():
    manager = make_manager(40, layers=(FULL, FULL_TOO))
    first, _ = start(manager, range(12))
    lost = first.tables[1][2]
    manager.free(first)
    manager._publications.forget(lost)
    manager._pool.demote(lost)
    assert hit_of(manager, [*range(10), 99, 99]).num_tokens == 8


def test_a_block_that_one_group_computes_in_this_very_step_prevents_the_copy():
    manager = make_manager(40, layers=(FULL, WINDOWED))
    first, _ = start(manager, range(12))
    lost = first.tables[1][2]
    manager.free(first)
    manager._publications.forget(lost)
    manager._pool.demote(lost)
    start(manager, range(12), commit=False)
    assert manager._groups[1].index[first.hashes[2]].in_flight
    assert hit_of(manager, [*range(10), 99, 99]).num_tokens == 8


def test_recurrent_state_cannot_be_cut():
    manager = make_manager(40, layers=(FULL, RecurrentSpec(state_bytes=64)))
    start(manager, range(12))
    assert hit_of(manager, [*range(10), 99, 99]).num_tokens == 8


# ---- references


def test_a_source_is_held_until_the_copying_step_is_done():
    manager = make_manager(num_blocks=4)
    first, _ = start(manager, range(8))
    source = first.tables[0][1]
    manager.free(first)
    second, hit = start(manager, [*range(6), 99], commit=False)
    assert (hit.num_free_blocks, source.ref) == (1, 1)
    assert manager.num_free_blocks == 1
    land(manager, second)
    assert source.ref == 0 and second.copies() == []
    assert manager.num_free_blocks == 2
    manager.free(second)
    assert hit_of(manager, [*range(7), 99]).num_tokens == 7


@pytest.mark.parametrize("leave", ["free", "withdraw"])
def test_a_request_that_leaves_lets_go_of_its_source_first(leave):
    """Else the block before it could be evicted under it."""
    manager = make_manager(num_blocks=4)
    first, _ = start(manager, range(8))
    manager.free(first)
    second, _ = start(manager, [*range(6), 99], commit=False)
    getattr(manager, leave)(second)
    manager.check()
    assert manager.num_free_blocks == 4 and second.copies() == []
    assert hit_of(manager, [*range(7), 99]).num_tokens == 7


def test_no_copy_where_the_request_itself_needs_the_room():
    """A fully cached prompt in a pool of its own size: its last block must be evicted to make room, not held."""
    manager = make_manager(num_blocks=2)
    first, _ = start(manager, range(8))
    manager.free(first)
    held = manager.open(list(range(8)))
    hit = manager.match(held)
    assert hit.num_tokens == 4 and manager.num_blocks_needed(hit, 8) == 2
    manager.adopt(held, hit)
    assert manager.allocate(held, 8) is not None
    land(manager, held)


def test_a_copied_block_that_fills_with_the_same_tokens_becomes_its_twin():
    manager = make_manager()
    first, _ = start(manager, range(8))
    second, hit = start(manager, range(8))
    assert hit.num_tokens == 7
    assert [block.id for block in second.tables[0]] == [block.id for block in first.tables[0]]


def test_a_failing_copier_leaves_the_source_alone():
    manager = make_manager()
    first, _ = start(manager, range(8))
    second, _ = start(manager, [*range(6), 90, 91, 92], commit=False)
    assert manager.revoke([second]) == []
    manager.free(second)
    manager.commit()
    manager.check()
    assert hit_of(manager, [*range(6), 90, 99]).num_tokens == 6
    manager.free(first)


def test_a_block_reused_before_the_step_that_fills_it_is_done_never_becomes_a_source():
    """Its owner left in between, and another request of the same plan took it."""
    manager = make_manager(num_blocks=2)
    held, _ = start(manager, range(8), commit=False)
    manager.free(held)
    other, _ = start(manager, range(50, 58), commit=False)
    manager.commit()
    manager.check()
    manager.free(other)
    assert hit_of(manager, [0, 1, 99]).num_tokens == 0
    assert hit_of(manager, [50, 51, 99]).num_tokens == 2
