"""Groups that let go of blocks out of reach: what they hold, what they accept, what is reused first.

Blocks hold 4 tokens; WINDOWED sees 8 tokens, itself included, so two blocks before a border.
"""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.blocks import Block
from octavo.kv.groups import policy_for
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec, CacheGroup, KVDtype, LatentSpec, RecurrentSpec, lay_out
from tests.scheduling.harness import FULL, WINDOWED, make_layout

CHUNKED = AttentionSpec(num_kv_heads=1, head_dim=4, chunk=8)
STATE = RecurrentSpec(state_bytes=64)


def make_manager(num_blocks=40, *, layers=(FULL, WINDOWED), max_step_tokens=4, **options):
    return KVManager(
        make_layout(num_blocks, layers=layers), fingerprint="f", max_step_tokens=max_step_tokens, **options
    )


def grow(manager, held, num_tokens, *, step=4):
    """Runs tokens of an admitted request in steps until `num_tokens` are computed."""
    done = held.num_full * 4
    while done < num_tokens:
        done = min(num_tokens, done + step)
        assert manager.allocate(held, done) is not None
        manager.check()
        manager.settle(held, done)
        manager.commit()
        manager.check()
    return held


def admit(manager, tokens, **options):
    held = manager.open(list(tokens), **options)
    hit = manager.match(held)
    manager.adopt(held, hit)
    manager.check()
    return held, hit


def run(manager, tokens, **options):
    """A whole request, in steps; still held."""
    held, _ = admit(manager, tokens, **options)
    return grow(manager, held, len(held.token_ids))


def held_entries(held, group):
    return [position for position, block in enumerate(held.tables[group]) if block.id]


# ---- what is held


def test_blocks_below_the_window_are_let_go_as_the_request_grows():
    manager = make_manager()
    held, _ = admit(manager, range(40))
    entries = []
    for num_tokens in range(4, 44, 4):
        grow(manager, held, num_tokens)
        entries.append(held_entries(held, 1))
    assert entries[:4] == [[0], [0, 1], [1, 2], [2, 3]] and entries[-1] == [8, 9]
    assert held_entries(held, 0) == list(range(10))
    assert held.num_blocks == 12 == manager.num_blocks - manager.num_free_blocks
    assert held.max_blocks == 10 + 3


def test_each_entry_let_go_is_told_once():
    manager = make_manager(sub_block_match=False)
    held, _ = admit(manager, range(40))
    grow(manager, held, 16)
    assert held.take_swaps() == [(1, 0, 0), (1, 1, 0)]
    grow(manager, held, 20)
    assert held.take_swaps() == [(1, 2, 0)]


def test_a_request_holds_never_more_than_its_layout_says():
    for step in (1, 3, 4, 7, 40):
        manager = make_manager(60, layers=(FULL, WINDOWED, CHUNKED, STATE), max_step_tokens=step)
        held, _ = admit(manager, range(40))
        grow(manager, held, 40, step=step)
        assert held.max_blocks <= manager.blocks_per_request(40)


def test_a_long_request_runs_in_a_pool_that_does_not_hold_all_its_blocks():
    layout = make_layout(1, layers=(WINDOWED,))
    manager = make_manager(layout.blocks_per_request(400, 4), layers=(WINDOWED,))
    assert manager.num_blocks == 4
    run(manager, range(400))


@pytest.mark.parametrize("caching", [True, False])
def test_gemma3_holds_at_3000_tokens_what_its_windows_need(caching):
    """The layout of gemma3-270m: 15 of 18 layers see 512 tokens. Prompt in steps of 1,000, then decoding."""
    kinds = [AttentionSpec(num_kv_heads=1, head_dim=256, window=None if i % 6 == 5 else 512) for i in range(18)]
    layout = lay_out(tuple(kinds), num_blocks=1000, block_size=16, dtype=KVDtype.FP16)
    manager = KVManager(layout, enable_prefix_caching=caching, max_step_tokens=1000, fingerprint="f")
    held = manager.open(list(range(2990)))
    manager.adopt(held, manager.match(held))
    for num_computed in (1000, 2000, *range(2990, 3001)):
        held.token_ids += range(len(held.token_ids), num_computed)
        assert manager.allocate(held, num_computed) is not None
        manager.settle(held, num_computed)
        manager.commit()
    manager.check()
    assert [len(held_entries(held, group)) for group in range(6)] == [33] * 5 + [188]
    assert held.num_blocks == 353 and held.max_blocks <= manager.blocks_per_request(3000) == 188 + 5 * 96


def test_without_prefix_caching_blocks_are_let_go_as_well():
    manager = make_manager(enable_prefix_caching=False)
    held = run(manager, range(40))
    assert held_entries(held, 1) == [8, 9] and manager.num_cached_blocks == 0
    manager.free(held)
    manager.check()
    assert manager.num_free_blocks == manager.num_blocks


def test_chunks_are_let_go_when_the_next_one_begins():
    manager = make_manager(layers=(FULL, CHUNKED))
    held, _ = admit(manager, range(40))
    entries = []
    for num_tokens in range(4, 28, 4):
        grow(manager, held, num_tokens)
        entries.append(held_entries(held, 1))
    assert entries == [[0], [], [2], [], [4], []]


def test_a_recurrent_group_keeps_the_last_snapshot():
    manager = make_manager(layers=(FULL, STATE))
    held = run(manager, range(40))
    assert held_entries(held, 1) == [9]


def test_published_blocks_that_were_let_go_stay_findable():
    manager = make_manager()
    run(manager, range(40))
    assert len(manager._groups[1].index) == 10
    assert manager.match(manager.open(list(range(13)))).num_blocks == 3


def test_freeing_skips_what_is_gone_already():
    manager = make_manager()
    held = run(manager, range(40))
    manager.free(held)
    manager.free(held)
    manager.check()
    assert manager.num_free_blocks == manager.num_blocks


# ---- hits


@pytest.mark.parametrize("num_tokens", range(1, 42))
def test_a_hit_takes_only_the_run_within_reach(num_tokens):
    manager = make_manager(sub_block_match=False)
    manager.free(run(manager, range(40)))
    held, hit = admit(manager, [*range(num_tokens - 1), 99])
    assert hit.num_blocks == (num_tokens - 1) // 4
    expected = list(range(max(0, hit.num_blocks - 2), hit.num_blocks))
    assert held_entries(held, 1) == expected and held_entries(held, 0) == list(range(hit.num_blocks))
    assert hit.free_blocks == (hit.num_blocks, len(expected))


def lose(manager, group, position, tokens):
    """Evicts one cached block by hand."""
    held = manager.open([*tokens, 0])
    manager.match(held)
    block = manager._groups[group].index[held.hashes[position]]
    manager._publications.forget(block)
    manager._pool.demote(block)


def test_a_border_whose_run_is_broken_steps_down_to_where_it_broke():
    manager = make_manager(sub_block_match=False)
    manager.free(run(manager, range(40)))
    lose(manager, 1, 8, range(40))
    assert manager.match(manager.open(list(range(41)))).num_blocks == 8
    lose(manager, 1, 5, range(40))
    assert manager.match(manager.open(list(range(41)))).num_blocks == 8
    lose(manager, 1, 6, range(40))
    assert manager.match(manager.open(list(range(41)))).num_blocks == 5


@pytest.mark.parametrize(("lost", "num_hit"), [(9, 8), (8, 8), (7, 10), (0, 10)])
def test_chunks_before_the_last_are_not_missed(lost, num_hit):
    """At the border of a chunk nothing is needed; within it, what stands between."""
    manager = make_manager(layers=(FULL, CHUNKED), sub_block_match=False)
    manager.free(run(manager, range(44)))
    lose(manager, 1, lost, range(44))
    assert manager.match(manager.open([*range(40), 99])).num_blocks == 10
    assert manager.match(manager.open([*range(44), 99])).num_blocks == 11
    assert manager.match(manager.open([*range(36), 99])).num_blocks == (9 if lost != 8 else 8)


def test_a_recurrent_group_needs_its_snapshot_at_the_border_and_nothing_else():
    manager = make_manager(layers=(FULL, STATE))
    manager.free(run(manager, range(40)))
    for lost, num_hit in ((8, 10), (9, 8), (0, 8), (7, 7)):
        lose(manager, 1, lost, range(40))
        assert manager.match(manager.open(list(range(41)))).num_blocks == num_hit


def test_snapshots_are_published_after_the_step_that_makes_them():
    manager = make_manager(layers=(FULL, STATE))
    first, _ = admit(manager, range(8))
    manager.allocate(first, 8)
    assert (len(manager._groups[0].index), len(manager._groups[1].index)) == (2, 0)
    assert manager.match(manager.open(list(range(9)))).num_blocks == 0
    manager.settle(first, 8)
    manager.commit()
    manager.check()
    assert manager.match(manager.open(list(range(9)))).num_blocks == 2


def test_latent_state_is_kept_and_found_like_full_attention():
    layout = lay_out((LatentSpec(latent_dim=8, rope_dim=4),), num_blocks=20, block_size=4, dtype=KVDtype.FP16)
    manager = KVManager(layout, fingerprint="f")
    manager.free(run(manager, range(20)))
    assert manager.match(manager.open([*range(18), 99])).num_tokens == 18


@given(
    st.sampled_from([WINDOWED, CHUNKED, STATE, AttentionSpec(num_kv_heads=1, head_dim=4, window=1)]),
    st.sets(st.integers(0, 30)),
    st.integers(0, 31),
)
def test_accept_finds_the_largest_border_whose_needs_are_cached(spec, cached, limit):
    policy = policy_for(CacheGroup(spec=spec, num_layers=1), 4)
    names = [bytes([i]) for i in range(31)]
    for i in cached:
        policy.index.publish(Block(i + 1), names[i], None)
    fits = [
        border
        for border in range(limit + 1)
        if all(block in cached for block in range(spec.first_needed(4 * border) // 4, border))
    ]
    assert policy.accept(names, limit) == max(fits)


# ---- reuse


def test_blocks_let_go_are_reused_before_those_kept_for_their_use():
    manager = make_manager(num_blocks=16)
    manager.free(run(manager, range(12)))  # 3 full; 3 windowed, of which the last two were used last
    held, _ = admit(manager, range(100, 140))
    grow(manager, held, 32)
    assert manager.match(manager.open([*range(12), 99])).num_blocks == 3, "8 full and 3 windowed took the 10 others"
    assert manager.num_evicted > 0


@pytest.mark.parametrize(("remembers", "num_hit"), [(True, 8), (False, 0)])
def test_the_run_before_a_junction_is_kept(remembers, num_hit):
    """Many questions behind one long text. While the first is answered nobody knows where the next will part from it.
    The second learns it, and keeps what the third needs."""
    shared = range(32)
    manager = make_manager(num_blocks=60)
    run(manager, [*shared, *range(100, 112)])
    second, hit = admit(manager, [*shared, *range(200, 212)])
    assert hit.num_blocks == second.junction == 8
    if not remembers:
        second.junction = 0
    grow(manager, second, 44)
    for held in list(manager._holders):
        manager.free(held)
    num_kept = sum(1 for _ in takewhile(lambda block: block is not manager._pool._free._mark, ring(manager)))
    crowd_out(manager, manager._pool.num_never_used + num_kept)
    assert manager.match(manager.open([*shared, 300])).num_blocks == num_hit


def ring(manager):
    """Free blocks that were used before and the mark among them, in the order of reuse."""
    block = manager._pool._free._end.next
    while block is not manager._pool._free._end:
        yield block
        block = block.next


def crowd_out(manager, num_blocks):
    """Takes so many blocks out of the order of reuse."""
    for _ in range(num_blocks):
        manager._take(0)


# ---- preemption, twins, failures


def test_a_preempted_request_comes_back_to_the_run_it_held():
    manager = make_manager(sub_block_match=False)
    held = run(manager, range(42))
    manager.free(held)
    hit = manager.match(held)
    assert hit.num_blocks == 10
    manager.adopt(held, hit)
    assert held_entries(held, 1) == [8, 9]
    manager.check()
    grow(manager, held, 42)


def test_twins_are_switched_before_they_are_let_go():
    manager = make_manager(max_step_tokens=None)
    first = run(manager, range(32))
    second = manager.open(list(range(32)), reads_cache=False)
    manager.adopt(second, manager.match(second))
    assert manager.allocate(second, 32) is not None
    before = manager.num_free_blocks
    manager.settle(second, 32)
    manager.commit()
    manager.check()
    assert held_entries(second, 1) == held_entries(first, 1) == [6, 7]
    assert [block.id for block in second.tables[0]] == [block.id for block in first.tables[0]]
    assert manager.num_free_blocks == before + 16
    told = {}
    for group, position, block in second.take_swaps():
        told[group, position] = block
    assert all(told[1, position] == 0 for position in range(6)) and all(told[1, position] for position in (6, 7))


def test_who_shares_only_the_run_of_a_failing_request_starts_anew():
    """No parents are known in such a group; that the reader holds a spoiled block is enough."""
    manager = make_manager(layers=(WINDOWED,), max_step_tokens=None)
    failed, _ = admit(manager, range(32))
    manager.allocate(failed, 32)
    sharer, hit = admit(manager, [*range(28), *range(50, 58)])
    assert hit.num_blocks == 7
    manager.allocate(sharer, 36)
    third, hit = admit(manager, [*range(28), *range(50, 58), 60])
    assert hit.num_blocks == 9
    manager.allocate(third, 37)
    assert manager.revoke([failed]) == [sharer, third]
    for held in (failed, sharer, third):
        manager.free(held)
    manager.commit()
    manager.check()
    assert manager.num_cached_blocks == 0


def test_what_a_request_with_a_hit_needs_never_passes_what_it_can_hold():
    """Else a pool made for one request could refuse it because half of it is cached."""
    manager = make_manager(make_layout(1, layers=(FULL, WINDOWED)).blocks_per_request(40, 4))
    manager.free(run(manager, range(40)))
    for num_tokens in range(1, 41):
        held = manager.open([*range(num_tokens - 1), 99])
        hit = manager.match(held)
        assert manager.num_blocks_needed(hit, 40) <= manager.num_blocks
        manager.adopt(held, hit)
        held.token_ids += range(200, 240 - num_tokens)
        grow(manager, held, 40)
        manager.free(held)


def test_the_number_of_private_blocks_counts_what_is_within_reach():
    manager = make_manager(sub_block_match=False)
    first = run(manager, range(40))
    assert manager.num_private_blocks(first) == 12
    second, _ = admit(manager, [*range(28), 99])
    assert manager.num_private_blocks(first) == 12 - 7
    free = manager.num_free_blocks
    manager.free(first)
    assert manager.num_free_blocks == free + 5
    assert manager.num_private_blocks(second) == 7 + 2
