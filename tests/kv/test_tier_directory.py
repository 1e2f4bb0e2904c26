"""The directory of a tier, against a list that is searched from end to end."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.kv.record import BlockRecord, Tier
from octavo.kv.tier_directory import TierDirectory
from tests.effort import times

CLOSED, OPEN = 0, 1


def make_record(chain, depth, group=CLOSED):
    """Block `depth` of a chain of that name."""
    names = [f"{chain}{i}".encode() for i in range(depth + 1)]
    parent = names[depth - 1] if depth else None
    return BlockRecord(group=group, block_hash=names[depth], parent_hash=parent, token_ids=(depth,))


def name_of(record):
    return record.group, record.block_hash


def make_directory(capacity, num_bytes=lambda record: 1):
    return TierDirectory(Tier.HOST, capacity, num_bytes, [True, False])


def bring(directory, *records):
    """Stores records one by one; returns what went for them."""
    for record in records:
        assert directory.expect(record)
        directory.arrived(name_of(record))
    return directory.take_gone()


def test_the_least_recently_used_goes_first():
    directory = make_directory(3)
    a, b, c, d = (make_record(chain, 0) for chain in "abcd")
    bring(directory, a, b, c)
    directory.touch([name_of(a)])
    assert bring(directory, d) == [name_of(b)]


def test_a_block_goes_after_those_behind_it():
    directory = make_directory(4)
    bring(directory, *(make_record("a", depth) for depth in range(3)), make_record("b", 0))
    assert bring(directory, make_record("c", 0), make_record("d", 0)) == [(0, b"a2"), (0, b"a1")]


def test_in_a_group_with_reach_the_earlier_blocks_of_a_chain_go_first():
    directory = make_directory(3)
    bring(directory, *(make_record("a", depth, OPEN) for depth in range(3)))
    directory.touch([(OPEN, b"a0"), (OPEN, b"a1"), (OPEN, b"a2")])
    assert bring(directory, make_record("b", 0), make_record("c", 0)) == [(OPEN, b"a0"), (OPEN, b"a1")]


def test_a_chain_longer_than_the_tier_keeps_its_beginning():
    directory = make_directory(3)
    bring(directory, *(make_record("a", depth) for depth in range(3)))
    assert not directory.expect(make_record("a", 3))
    assert directory.take_gone() == [] and len(directory) == 3


def test_what_is_on_its_way_takes_room_but_cannot_be_found():
    directory = make_directory(2)
    a, b, c = (make_record(chain, 0) for chain in "abc")
    assert directory.expect(a) and directory.expect(b)
    assert directory.knows(name_of(a)) and name_of(a) not in directory
    assert not directory.expect(c), "nothing that is on its way may go"
    directory.remove(name_of(a))
    assert directory.expect(c) and directory.used_bytes == 2


def test_what_is_being_read_stays():
    directory = make_directory(2)
    a, b, c, d = (make_record(chain, 0) for chain in "abcd")
    bring(directory, a, b)
    entries = directory.begin_reading([name_of(a)])
    assert bring(directory, c) == [name_of(b)]
    directory.end_reading(entries)
    assert bring(directory, d) == [name_of(a)]


def test_a_block_that_was_lost_while_it_was_read_and_came_again_is_not_mistaken_for_itself():
    directory = make_directory(2)
    a = make_record("a", 0)
    bring(directory, a)
    entries = directory.begin_reading([name_of(a)])
    directory.remove(name_of(a))
    bring(directory, a)
    directory.end_reading(entries)
    assert directory.can_all_go()
    assert bring(directory, make_record("b", 0), make_record("c", 0)) == [name_of(a)]


def test_records_come_parents_first():
    directory = make_directory(10)
    bring(directory, make_record("a", 2), make_record("a", 0), make_record("b", 0), make_record("a", 1))
    names = [record.block_hash for record in directory.records()]
    assert sorted(names) == [b"a0", b"a1", b"a2", b"b0"]
    assert names.index(b"a0") < names.index(b"a1") < names.index(b"a2")


def test_large_blocks_make_several_small_ones_go():
    directory = make_directory(4, num_bytes=lambda record: record.token_ids[0])
    small = [BlockRecord(group=0, block_hash=bytes([i]), parent_hash=None, token_ids=(1,)) for i in range(4)]
    bring(directory, *small)
    large = BlockRecord(group=0, block_hash=b"large", parent_hash=None, token_ids=(3,))
    assert bring(directory, large) == [name_of(record) for record in small[:3]]
    assert not directory.expect(BlockRecord(group=0, block_hash=b"x", parent_hash=None, token_ids=(5,)))


class Uses(RuleBasedStateMachine):
    """Blocks of three chains come, are used, read, lost, and make each other go."""

    @initialize(capacity=st.integers(1, 12))
    def start(self, capacity):
        self.directory = make_directory(capacity)
        self.capacity = capacity
        self.uses = {}
        """Name -> (last use, number) of each block that has arrived."""
        self.coming = {}
        self.records = {}
        self.reading = []
        self.clock = self.made = 0

    def may_go(self):
        """Names of what may go, first to go first."""
        behind = {(r.group, r.parent_hash) for r in self.records.values() if r.group == CLOSED}
        read = {name_of(entry.record) for _, entries in self.reading for entry in entries}
        free = [name for name in self.uses if name not in behind and name not in read]
        return sorted(free, key=lambda name: self.uses[name])

    @rule(chain=st.sampled_from("abc"), depth=st.integers(0, 5), group=st.sampled_from([CLOSED, CLOSED, OPEN]))
    def expect(self, chain, depth, group):
        record = make_record(chain, depth, group)
        name = name_of(record)
        if self.directory.knows(name):
            return
        self.made += 1
        number = self.made
        self.records[name] = record
        gone = []
        while len(self.records) > self.capacity:
            free = self.may_go()
            if not free:
                break
            gone.append(free[0])
            del self.records[free[0]], self.uses[free[0]]
        fits = len(self.records) <= self.capacity
        assert self.directory.expect(record) == fits
        assert self.directory.take_gone() == gone
        if fits:
            self.coming[name] = number
        else:
            del self.records[name]

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), arrives=st.sampled_from([True, True, False]))
    def end(self, data, arrives):
        name = data.draw(st.sampled_from(sorted(self.coming)))
        number = self.coming.pop(name)
        if arrives:
            self.directory.arrived(name)
            self.clock += 1
            self.uses[name] = (self.clock, number)
        else:
            self.directory.remove(name)
            del self.records[name]

    @rule(chain=st.sampled_from("abc"), depth=st.integers(0, 5), group=st.sampled_from([CLOSED, OPEN]))
    def touch(self, chain, depth, group):
        names = [name_of(make_record(chain, i, group)) for i in range(depth + 1)]
        self.directory.touch(names)
        self.clock += 1
        for name in names:
            if name in self.uses:
                self.uses[name] = (self.clock, self.uses[name][1])

    @precondition(lambda self: self.uses)
    @rule(data=st.data())
    def begin_reading(self, data):
        names = data.draw(st.lists(st.sampled_from(sorted(self.uses)), min_size=1, max_size=3, unique=True))
        self.reading.append((names, self.directory.begin_reading(names)))

    @precondition(lambda self: self.reading)
    @rule(data=st.data())
    def end_reading(self, data):
        _, entries = self.reading.pop(data.draw(st.integers(0, len(self.reading) - 1)))
        self.directory.end_reading(entries)

    @invariant()
    def agrees(self):
        if not hasattr(self, "directory"):
            return
        assert set(self.directory.names()) == set(self.records)
        assert {name for name in self.records if name in self.directory} == set(self.uses)
        assert self.directory.used_bytes == len(self.records) <= self.capacity
        assert self.directory.can_all_go()
        assert len(self.directory._oldest) <= 4 * len(self.records) + 65


TestUses = Uses.TestCase
TestUses.settings = settings(max_examples=times(50), stateful_step_count=40)


def test_the_order_of_going_stays_short_however_often_blocks_are_used():
    directory = make_directory(10)
    bring(directory, *(make_record(chain, 0) for chain in "abcdefghij"))
    for _ in range(1000):
        directory.touch([(0, b"a0"), (0, b"b0")])
    assert len(directory._oldest) < 110
    assert bring(directory, make_record("k", 0)) == [(0, b"c0")]


@pytest.mark.parametrize("group", [CLOSED, OPEN])
def test_clearing_leaves_what_is_on_its_way(group):
    directory = make_directory(5)
    bring(directory, make_record("a", 0, group), make_record("b", 0, group))
    directory.expect(make_record("c", 0, group))
    assert sorted(directory.clear()) == [(group, b"a0"), (group, b"b0")]
    assert list(directory.names()) == [(group, b"c0")]
