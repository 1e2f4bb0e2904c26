"""The index of one group, and the hit that several groups agree on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.blocks import Block
from octavo.kv.groups import common_hit, policy_for
from octavo.kv.prefix import PrefixIndex
from octavo.kv.spec import AttentionSpec, CacheGroup


def publish_chain(index, hashes):
    parent = None
    for i, name in enumerate(hashes):
        block = Block(i + 1)
        index.publish(block, name, parent)
        parent = block
    return parent


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_bisected_hit_is_the_linear_one(num_published, num_named, limit):
    names = [bytes([i]) for i in range(40)]
    index = PrefixIndex()
    publish_chain(index, names[:num_published])
    limit = min(limit, num_named)
    linear = 0
    while linear < limit and index.get(names[linear]) is not None:
        linear += 1
    assert index.longest_hit(names[:num_named], limit) == linear


def test_a_block_with_cached_children_cannot_leave():
    index = PrefixIndex()
    last = publish_chain(index, [b"a", b"b", b"c"])
    middle = last.parent
    with pytest.raises(RuntimeError, match="without children"):
        index.remove(middle)
    index.remove(last)
    index.remove(middle)
    assert len(index) == 1 and last.hash is None and last.parent is None


def test_an_unpublished_block_cannot_leave():
    with pytest.raises(RuntimeError, match="must be published"):
        PrefixIndex().remove(Block(1))


def test_clear_forgets_names_and_relations():
    index = PrefixIndex()
    last = publish_chain(index, [b"a", b"b"])
    first = last.parent
    index.clear()
    assert len(index) == 0 and list(index) == []
    assert (first.hash, first.num_children, last.parent) == (None, 0, None)


class Accepting:
    """A group that accepts only some lengths, as a sliding window or a recurrent state does."""

    def __init__(self, lengths):
        self.lengths = lengths
        self.index = PrefixIndex()

    def accept(self, hashes, limit):
        return max(length for length in self.lengths if length <= limit)


def test_the_common_hit_is_the_longest_that_all_groups_accept():
    """Stepping down for one group can make another step down, too."""
    groups = [Accepting([0, 3, 6, 8]), Accepting([0, 2, 3, 7]), Accepting([0, 1, 2, 3, 4, 5, 6, 7, 8])]
    assert common_hit(groups, [], 8) == 3
    assert common_hit(groups, [], 2) == 0
    assert common_hit(groups[2:], [], 8) == 8


@given(st.lists(st.sets(st.integers(1, 20)), min_size=1, max_size=4), st.integers(0, 20))
def test_the_common_hit_equals_the_largest_common_element(accepted, limit):
    groups = [Accepting([0, *lengths]) for lengths in accepted]
    common = set.intersection(*({0, *lengths} for lengths in accepted))
    assert common_hit(groups, [], limit) == max(length for length in common if length <= limit)


def test_layers_that_need_all_positions_accept_any_cached_prefix():
    spec = AttentionSpec(num_kv_heads=1, head_dim=4)
    group = policy_for(CacheGroup(spec=spec, num_layers=1), block_size=4)
    publish_chain(group.index, [b"a", b"b"])
    assert group.accept([b"a", b"b", b"c"], 3) == 2
    assert group.accept([b"x", b"b"], 2) == 0
