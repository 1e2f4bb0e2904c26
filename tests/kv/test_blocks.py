"""The pool: who is handed out next, and reference counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.blocks import NULL_BLOCK_ID, Block, BlockPool, FreeList


def ids(blocks):
    return [block.id for block in blocks]


def test_usable_blocks_are_all_but_the_null_block():
    pool = BlockPool(5)
    assert (pool.num_usable, pool.num_free) == (4, 4)
    assert ids(pool.take() for _ in range(4)) == [1, 2, 3, 4]
    assert pool.num_free == 0
    assert pool.blocks[0].id == NULL_BLOCK_ID and pool.blocks[0].ref == 0


def test_an_unpublished_block_is_reused_first_and_a_published_one_last():
    pool = BlockPool(5)
    first, second, third = pool.take(), pool.take(), pool.take()
    first.hash = b"published"
    pool.release(first)
    pool.release(second)
    pool.release(third)
    assert ids(pool.take() for _ in range(4)) == [third.id, second.id, 4, first.id]


def test_a_block_exists_from_its_first_use_on():
    pool = BlockPool(2**30)
    pool.release(pool.take())
    assert (len(pool.blocks), pool.num_never_used, pool.num_free) == (2, 2**30 - 2, 2**30 - 1)
    assert pool.take().id == 1
    assert pool.take().id == 2


def test_published_blocks_are_reused_least_recently_released_first():
    pool = BlockPool(4)
    taken = [pool.take() for _ in range(3)]
    for block in taken:
        block.hash = bytes([block.id])
    for block in (taken[1], taken[0], taken[2]):
        pool.release(block)
    pool.touch(taken[1])
    pool.release(taken[1])
    assert ids(pool.free_blocks()) == [taken[0].id, taken[2].id, taken[1].id]


def test_a_block_is_free_only_without_references():
    pool = BlockPool(2)
    block = pool.take()
    pool.touch(block)
    pool.release(block)
    assert (block.ref, pool.num_free) == (1, 0)
    pool.release(block)
    assert (block.ref, pool.num_free) == (0, 1)


def test_touch_takes_a_free_block_out_of_the_middle_of_the_list():
    pool = BlockPool(5)
    for block in [pool.take() for _ in range(4)][::-1]:
        pool.release(block)
    pool.touch(pool.blocks[3])
    assert ids(pool.free_blocks()) == [1, 2, 4]


def test_demote_moves_only_free_blocks():
    pool = BlockPool(4)
    held, second, third = [pool.take() for _ in range(3)]
    pool.release(second)
    pool.release(third)
    pool.demote(second)
    pool.demote(held)
    pool.demote(third)
    assert ids(pool.free_blocks()) == [3, 2]


@given(st.lists(st.tuples(st.sampled_from(["front", "back", "pop", "remove"]), st.integers(0, 9))))
def test_the_free_list_behaves_like_a_plain_list(operations):
    blocks, linked, plain = [Block(i) for i in range(10)], FreeList(), []
    for operation, index in operations:
        block = blocks[index]
        if operation in ("front", "back") and block not in plain:
            getattr(linked, f"push_{operation}")(block)
            plain.insert(0 if operation == "front" else len(plain), block)
        elif operation == "pop" and plain:
            assert linked.pop_front() is plain.pop(0)
        elif operation == "remove" and block in plain:
            linked.remove(block)
            plain.remove(block)
        assert list(linked) == plain
        assert len(linked) == len(plain)


def test_a_block_says_what_it_is():
    block = Block(7)
    assert "unpublished" in repr(block)
    block.hash = bytes.fromhex("0123456789")
    assert repr(block) == "Block(7, ref=0, group=0, 01234567, children=0)"


def test_popping_an_empty_list_is_a_fault():
    with pytest.raises(AssertionError):
        FreeList().pop_front()
