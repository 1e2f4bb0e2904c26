"""`check()` can fail: each law, broken by hand, is noticed and named."""

import pytest

from octavo.kv.manager import KVManager
from octavo.kv.publication import Published
from tests.scheduling.harness import make_layout


@pytest.fixture
def broken():
    """A manager with one running request of 10 tokens and a cached chain of 8; still sound."""
    manager = KVManager(make_layout(8), fingerprint="f")
    for tokens in (range(8), range(100, 110)):
        held = manager.open(list(tokens))
        manager.adopt(held, manager.match(held))
        manager.allocate(held, len(tokens))
        manager.commit()
        if tokens.start == 0:
            manager.free(held)
    manager.check()
    manager.held = held
    return manager


def expect(manager, law):
    with pytest.raises(AssertionError, match=law):
        manager.check()


def test_a_lost_reference(broken):
    broken.held.tables[0][0].ref -= 1
    expect(broken, "references are the entries of all tables")


def test_a_forgotten_table(broken):
    broken._holders.clear()
    expect(broken, "references are the entries of all tables")


def test_a_held_null_block(broken):
    null = broken._pool.blocks[0]
    null.ref = 1
    expect(broken, "references are the entries")
    null.ref = 0
    broken.held.tables[0].append(null)
    expect(broken, "an entry behind the published ones is private")


def test_a_leaked_block(broken):
    broken._pool._free.pop_front()
    expect(broken, "free \\+ used \\+ 1 = N")


def test_a_miscounted_free_list(broken):
    broken._pool._free._length -= 1
    expect(broken, "the free list is as long as it says")


def test_reuse_out_of_order(broken):
    short = broken.open([200])
    broken.adopt(short, broken.match(short))
    broken.allocate(short, 1)
    broken.free(short)  # an unpublished block, at the front
    broken.check()
    cached = next(block for block in broken._pool.free_blocks() if block.hash is not None)
    broken._pool._free.remove(cached)
    broken._pool._free.push_front(cached)
    expect(broken, "unpublished blocks are reused before published ones")


def test_a_parent_evicted_before_its_child(broken):
    parent = next(block for block in broken._pool.free_blocks() if block.num_children)
    broken._pool._free.remove(parent)
    parents_child = next(block for block in broken._pool.free_blocks() if block.parent is parent)
    broken._pool._free.remove(parents_child)
    broken._pool._free.push_back(parent)
    broken._pool._free.push_back(parents_child)
    expect(broken, "children are evicted before their parent")


def test_a_stranded_suffix(broken):
    parent = broken.held.tables[0][0]
    index = broken._groups[0].index
    index._block_by_hash.pop(parent.hash)
    expect(broken, "a parent is published")


def test_miscounted_children(broken):
    broken.held.tables[0][0].num_children += 1
    expect(broken, "children are counted")


def test_a_block_in_the_index_of_another_group(broken):
    broken.held.tables[0][0].group = 1
    expect(broken, "belongs to the group of its index")


def test_a_child_held_without_its_parent(broken):
    child = next(block for block in broken._pool.free_blocks() if block.parent is not None)
    broken._pool.touch(child)
    broken.held.tables[0].append(child)
    expect(broken, "who holds a block holds its parent")


def test_a_published_entry_behind_the_border(broken):
    broken.held.num_published[0] = 1
    expect(broken, "an entry behind the published ones is private")


def test_an_unpublished_entry_before_the_border(broken):
    broken.held.num_published[0] = 3
    broken.held.hashes.append(b"?")
    expect(broken, "a published entry has its own hash")


def test_a_wrong_settled_count(broken):
    broken.held.num_settled = 0
    expect(broken, "settled entries are published in all groups")


def test_a_flight_that_nobody_counts(broken):
    broken.held.tables[0][0].in_flight = True
    expect(broken, "blocks in flight are those published for steps not done")


def test_a_computed_block_behind_one_in_flight(broken):
    parent = broken.held.tables[0][0]
    parent.in_flight = True
    broken._publications._steps[-1].append(Published(broken.held, parent, 0))
    expect(broken, "a computed block has a computed parent")
