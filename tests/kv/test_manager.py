"""The KV manager: hits, sharing, publication and what takes it back. Blocks hold 4 tokens unless said."""

import pytest

from octavo.kv.hashing import tenant_salt
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec
from tests.scheduling.harness import FULL, WINDOWED, make_layout

FULL_TOO = AttentionSpec(num_kv_heads=2, head_dim=2)
"""Full attention in a group of its own."""


def make_manager(num_blocks=16, *, layers=(FULL,), block_size=4, caching=True, sub_block_match=False):
    layout = make_layout(num_blocks, layers=layers, block_size=block_size)
    return KVManager(layout, enable_prefix_caching=caching, sub_block_match=sub_block_match, fingerprint="f")


def start(manager, tokens, *, num_tokens=None, commit=True, **options):
    """Admits a request and runs all (or the first `num_tokens`) of its tokens in one step."""
    held = manager.open(list(tokens), **options)
    hit = manager.match(held)
    manager.adopt(held, hit)
    assert manager.allocate(held, num_tokens or len(held.token_ids)) is not None
    if commit:
        manager.settle(held, num_tokens or len(held.token_ids))
        manager.commit()
    manager.check()
    return held, hit


def ids(held, group=0):
    return [block.id for block in held.tables[group]]


# ---- hit lengths


@pytest.mark.parametrize(
    ("num_tokens", "num_hit"), [(1, 0), (3, 0), (4, 0), (5, 4), (7, 4), (8, 4), (9, 8), (11, 8), (12, 8), (13, 12)]
)
def test_a_hit_is_whole_blocks_and_at_most_n_minus_1_tokens(num_tokens, num_hit):
    """A fully cached prompt recomputes its last block."""
    manager = make_manager()
    first, _ = start(manager, range(num_tokens))
    manager.free(first)
    assert manager.match(manager.open(list(range(num_tokens)))).num_tokens == num_hit


@pytest.mark.parametrize(("num_shared", "num_own"), [(2000, 500), (2005, 495)])
def test_2000_shared_tokens_hit_125_blocks_and_so_do_2005(num_shared, num_own):
    manager = make_manager(400, block_size=16)
    shared = list(range(num_shared))
    start(manager, shared + [-1 - i + 100_000 for i in range(num_own)])
    hit = manager.match(manager.open(shared + [200_000 + i for i in range(num_own)]))
    assert (hit.num_blocks, hit.num_tokens) == (125, 2000)


def test_match_changes_nothing():
    manager = make_manager()
    first, _ = start(manager, range(10))
    manager.free(first)
    before = [(block.id, block.ref) for block in manager._pool.free_blocks()]
    assert manager.match(manager.open(list(range(10)))).num_free_blocks == 2
    assert [(block.id, block.ref) for block in manager._pool.free_blocks()] == before
    manager.check()


def test_hit_blocks_that_nobody_holds_count_as_needed():
    manager = make_manager()
    first, _ = start(manager, range(10))
    second = manager.open([*range(10), 77, 78])
    assert manager.num_blocks_needed(manager.match(second), 12) == 1  # two hits are held, one block is new
    manager.free(first)
    assert manager.num_blocks_needed(manager.match(second), 12) == 3


def test_prompt_logprobs_style_requests_read_nothing_but_are_found_by_others():
    manager = make_manager()
    start(manager, range(10))
    blind, hit = start(manager, range(20, 30), reads_cache=False)
    assert hit.num_tokens == 0
    assert manager.match(manager.open(list(range(10)), reads_cache=False)).num_tokens == 0
    assert manager.match(manager.open(list(range(20, 30)))).num_tokens == 8
    manager.free(blind)


def test_without_prefix_caching_nothing_is_published_or_found():
    manager = make_manager(caching=False)
    held, _ = start(manager, range(12))
    assert manager.num_cached_blocks == 0
    assert manager.match(manager.open(list(range(12)))).num_tokens == 0
    assert held.hashes == []


def test_salts_separate_caches():
    manager = make_manager()
    start(manager, range(10), cache_salt="a")
    for salt, num_hit in (("a", 8), ("b", 0), (None, 0), ("", 0)):
        assert manager.match(manager.open(list(range(10)), cache_salt=salt)).num_tokens == num_hit


def test_isolated_tenants_share_nothing():
    layout = make_layout(16, layers=(FULL,), block_size=4)
    manager = KVManager(layout, fingerprint="f", isolate_tenants=True)
    start(manager, range(10), tenant="a", cache_salt="s")
    start(manager, range(10), tenant="c")
    for tenant, salt, num_hit in (
        ("a", "s", 8),
        ("a", None, 0),
        ("b", "s", 0),
        ("b", None, 0),
        ("c", None, 8),
        ("", None, 0),
        ("", tenant_salt("c", None), 0),
    ):
        assert manager.match(manager.open(list(range(10)), tenant=tenant, cache_salt=salt)).num_tokens == num_hit


def test_no_two_tenants_and_salts_have_one_name():
    pairs = [(tenant, salt) for tenant in ("", "a", "ab", "a\0", "\0") for salt in (None, "", "a", "b", "\0a")]
    assert len({tenant_salt(*pair) for pair in pairs}) == len(pairs)


def test_without_isolation_a_tenant_changes_nothing():
    manager = make_manager()
    start(manager, range(10), tenant="a")
    assert manager.match(manager.open(list(range(10)), tenant="b")).num_tokens == 8


def test_only_full_blocks_are_published():
    manager = make_manager()
    start(manager, range(11))
    assert manager.num_cached_blocks == 2


# ---- sharing


def test_two_equal_prompts_in_one_step_share_blocks():
    manager = make_manager()
    first, _ = start(manager, range(10), commit=False)
    second, hit = start(manager, range(10), commit=False)
    assert hit.num_tokens == 8
    assert ids(second)[:2] == ids(first)[:2] and ids(second)[2] != ids(first)[2]


def test_a_block_computed_twice_is_replaced_by_its_published_twin():
    """The last block of a fully cached prompt: private while it is computed, then shared."""
    manager = make_manager()
    first, _ = start(manager, range(8))
    second, hit = start(manager, range(8), commit=False)
    assert hit.num_tokens == 4
    own = ids(second)[1]
    assert own != ids(first)[1]
    manager.settle(second, 8)
    assert ids(second) == ids(first)
    assert second.take_swaps() == [(0, 1, ids(first)[1])] and second.swaps == []
    assert own in [block.id for block in manager._pool.free_blocks()]
    manager.check()


def test_blocks_behind_a_twin_are_published_once_the_twin_is_gone():
    """Publishing them at once would hang a cached child under a parent that its holder does not hold."""
    manager = make_manager()
    first, _ = start(manager, range(8))
    second, _ = start(manager, [*range(8), 100, 101, 102, 103], commit=False, reads_cache=False)
    assert manager.num_cached_blocks == 2 and second.num_published == [0]
    manager.settle(second, 12)
    assert manager.num_cached_blocks == 3 and second.num_published == [3]
    manager.free(first)
    manager.check()
    manager.free(second)
    manager.check()


def test_twins_that_lost_their_original_are_published_themselves():
    manager = make_manager(num_blocks=3)
    first, _ = start(manager, range(8))
    second, _ = start(manager, range(8), commit=False)
    manager.free(first)
    start(manager, range(50, 54), commit=False)  # takes the last free block, which holds the twin's original
    assert manager.num_evicted == 1
    manager.settle(second, 8)
    assert second.swaps == [] and second.num_published == [2]
    manager.check()


# ---- order of reuse and closure


def test_freed_hashed_blocks_stay_findable_until_they_are_reused():
    manager = make_manager(num_blocks=4)
    first, _ = start(manager, range(12))
    manager.free(first)
    assert (manager.num_free_blocks, manager.num_cached_blocks) == (4, 3)
    second, _ = start(manager, range(50, 57))  # one unused block, then the deepest cached one
    assert manager.num_evicted == 1
    assert manager.match(manager.open(list(range(12)))).num_tokens == 8
    manager.free(second)


def test_deeper_blocks_go_first_and_a_suffix_is_never_stranded():
    manager = make_manager(num_blocks=8)
    first, _ = start(manager, range(32))
    manager.free(first)
    for taken in range(1, 8):
        start(manager, range(1000 * taken, 1000 * taken + 3))
        assert manager.match(manager.open(list(range(33)))).num_blocks == 8 - taken


def test_the_least_recently_used_chain_goes_first():
    manager = make_manager(num_blocks=6)
    chains = [list(range(100 * i, 100 * i + 9)) for i in range(2)]
    for chain in chains:
        held, _ = start(manager, chain)
        manager.free(held)
    again, _ = start(manager, chains[0])
    manager.free(again)
    start(manager, range(1000, 1013))
    hits = [manager.match(manager.open(chain)).num_blocks for chain in chains]
    assert hits == [2, 0]


def test_eviction_interleaves_groups_so_that_hits_stay_common():
    manager = make_manager(num_blocks=8, layers=(FULL, FULL_TOO))
    first, _ = start(manager, range(16))
    manager.free(first)
    start(manager, [900])
    assert manager.match(manager.open(list(range(17)))).num_blocks == 3


def test_reference_counts_keep_a_shared_prefix_alive():
    manager = make_manager(num_blocks=5)
    first, _ = start(manager, range(10))
    second, _ = start(manager, [*range(8), 50, 51])
    manager.free(first)
    third, _ = start(manager, range(60, 64))
    assert manager.allocate(second, 10) is not None
    manager.check()
    for held in (second, third):
        manager.free(held)
    assert manager.num_free_blocks == manager.num_blocks


# ---- allocation


def test_allocation_is_all_or_nothing():
    manager = make_manager(num_blocks=3)
    held, _ = start(manager, range(20), num_tokens=8)
    assert manager.allocate(held, 20) is None
    assert len(held.tables[0]) == 2 and manager.num_free_blocks == 1
    manager.check()


def test_allocation_is_all_or_nothing_over_groups():
    manager = make_manager(num_blocks=3, layers=(FULL, WINDOWED))
    held, _ = start(manager, range(8), num_tokens=4)
    assert manager.allocate(held, 8) is None
    assert [len(table) for table in held.tables] == [1, 1]
    manager.check()


def test_every_group_has_a_table_of_its_own_over_one_pool():
    manager = make_manager(num_blocks=12, layers=(FULL, WINDOWED, WINDOWED))
    assert len(manager.layout.groups) == 3
    held, _ = start(manager, range(10))
    tables = [ids(held, group) for group in range(3)]
    assert [len(table) for table in tables] == [3, 3, 3]
    assert len({block for table in tables for block in table}) == 9
    assert held.max_blocks == held.num_blocks == 9


def test_allocate_returns_only_what_is_new():
    manager = make_manager()
    held, _ = start(manager, range(8), num_tokens=3)
    assert manager.allocate(held, 4) == ((),)
    (new,) = manager.allocate(held, 5)
    assert ids(held)[1:] == list(new)


def test_free_is_idempotent():
    manager = make_manager()
    held, _ = start(manager, range(10))
    manager.free(held)
    manager.free(held)
    assert manager.num_free_blocks == manager.num_blocks
    manager.check()


def test_a_holder_cannot_adopt_again():
    manager = make_manager()
    held, _ = start(manager, range(10))
    with pytest.raises(RuntimeError, match="already holds"):
        manager.adopt(held, manager.match(held))


# ---- publication and what takes it back


def test_withdrawn_blocks_cannot_be_found():
    manager = make_manager()
    held, _ = start(manager, range(12), num_tokens=4)
    manager.allocate(held, 12)
    assert manager.num_cached_blocks == 3
    manager.withdraw(held)
    assert manager.num_cached_blocks == 1
    assert manager.match(manager.open(list(range(12)))).num_tokens == 4
    manager.check()


def test_withdrawing_one_request_leaves_the_publications_of_others():
    manager = make_manager()
    first, _ = start(manager, range(8), commit=False)
    second, _ = start(manager, range(50, 58), commit=False)
    manager.withdraw(second)
    assert manager.match(manager.open(list(range(9)))).num_tokens == 8
    assert manager.match(manager.open(list(range(50, 59)))).num_tokens == 0
    manager.withdraw(first)
    assert manager.num_cached_blocks == 0
    manager.check()


def test_after_a_commit_nothing_can_be_taken_back():
    manager = make_manager()
    held, _ = start(manager, range(8))
    manager.withdraw(held)
    assert manager.num_cached_blocks == 2


def test_revoking_names_the_requests_that_hold_garbage_and_unpublishes_what_they_built_on_it():
    manager = make_manager()
    failed, _ = start(manager, range(8), commit=False)
    sharer, _ = start(manager, [*range(8), *range(50, 58)], commit=False)
    bystander, _ = start(manager, range(80, 88), commit=False)
    assert manager.revoke([failed]) == [sharer]
    assert manager.num_cached_blocks == 2
    for held in (failed, sharer):
        manager.free(held)
    manager.check()
    assert manager.match(manager.open(list(range(80, 89)))).num_tokens == 8
    manager.free(bystander)


def test_of_those_that_failed_only_who_read_nothing_of_others_is_to_blame():
    """The second read the first one's garbage, the third only what the second built on it."""
    manager = make_manager()
    first, _ = start(manager, range(8), commit=False)
    second, _ = start(manager, range(16), commit=False)
    third, _ = start(manager, range(20), commit=False)
    alone, _ = start(manager, range(80, 88), commit=False)
    assert manager.revoke([third, first, alone]) == [second, third]
    for held in (first, second, third, alone):
        manager.free(held)
    assert manager.num_cached_blocks == 0
    manager.check()


def test_a_reader_is_not_to_blame_though_the_one_it_read_is_gone():
    manager = make_manager()
    gone, _ = start(manager, range(8), commit=False)
    reader, _ = start(manager, range(9), commit=False)
    manager.free(gone)
    assert manager.revoke([gone, reader]) == [reader]
    manager.free(reader)
    manager.check()


def test_revoking_keeps_what_earlier_steps_computed():
    manager = make_manager()
    failed, _ = start(manager, range(12), num_tokens=8)
    sharer, _ = start(manager, [*range(8), 50])
    manager.allocate(failed, 12)
    assert manager.revoke([failed]) == []
    manager.free(failed)
    assert manager.match(manager.open(list(range(12)))).num_tokens == 8
    manager.free(sharer)
    manager.check()


def test_revoking_works_for_a_request_that_was_freed_in_the_meantime():
    manager = make_manager()
    failed, _ = start(manager, range(8), commit=False)
    sharer, _ = start(manager, range(9), commit=False)
    manager.free(failed)
    assert manager.revoke([failed]) == [sharer]
    manager.free(sharer)
    assert manager.num_cached_blocks == 0
    manager.check()


def test_a_grown_list_of_tokens_is_published_as_blocks_fill():
    manager = make_manager()
    held, _ = start(manager, range(6))
    for token in (6, 7, 8):
        held.token_ids.append(token)
        manager.allocate(held, len(held.token_ids))
        manager.commit()
    assert manager.num_cached_blocks == 2
    assert manager.match(manager.open(list(range(9)))).num_tokens == 8


# ---- reset


def test_reset_is_refused_while_blocks_are_held():
    manager = make_manager()
    held, _ = start(manager, range(10))
    assert manager.reset_prefix_cache() is False
    assert manager.num_cached_blocks == 2
    manager.free(held)
    assert manager.reset_prefix_cache() is True
    assert manager.num_cached_blocks == 0
    assert manager.match(manager.open(list(range(10)))).num_tokens == 0
    manager.check()


def test_an_idle_manager_uses_no_block_even_with_everything_cached():
    manager = make_manager(num_blocks=4)
    held, _ = start(manager, range(16))
    manager.free(held)
    assert manager.num_cached_blocks == 4
    assert manager.num_free_blocks == manager.num_blocks == 4


# ---- for those who put requests in order and forecast


@pytest.mark.parametrize("layers", [(FULL,), (FULL, WINDOWED)])
def test_num_hit_blocks_is_what_match_finds(layers):
    manager = make_manager(32, layers=layers)
    start(manager, range(20))
    for length in (1, 4, 5, 9, 20, 30):
        held = manager.open(list(range(length)))
        assert manager.num_hit_blocks(held) == manager.match(held).num_blocks
        count = manager.num_hit_blocks(held)
        assert [n for n in range(1, 9) if manager.is_longest_hit(held, n)] == ([count] if count else [])
        names = [manager.hit_name(held, position) for position in range(10)]
        assert names[: (length - 1) // 4] == held.hashes and set(names[(length - 1) // 4 :]) == {None}


def test_a_request_that_reads_nothing_has_no_names_to_find():
    manager = make_manager()
    start(manager, range(20))
    held = manager.open(list(range(20)), reads_cache=False)
    assert manager.hit_name(held, 0) is None and manager.num_hit_blocks(held) == 0


def test_private_blocks_are_those_that_become_free():
    manager = make_manager(32, layers=(FULL, WINDOWED))
    first, _ = start(manager, [*range(12), 50, 51, 52])
    assert manager.num_private_blocks(first) == 7  # one of the windowed group has got out of reach
    second, _ = start(manager, [*range(12), 60])
    assert manager.num_private_blocks(second) == 2
    free = manager.num_free_blocks
    assert manager.num_private_blocks(first) == 2
    manager.free(first)
    assert manager.num_free_blocks == free + 2
    assert manager.num_private_blocks(second) == 7


def test_a_listener_hears_each_name_that_becomes_findable():
    manager = make_manager()
    heard = []
    manager.listen(heard.append)
    held, _ = start(manager, range(13))
    assert heard == held.hashes[:3]
    start(manager, range(13))
    assert heard == held.hashes[:3]


def test_who_published_for_this_step_what_another_holds_cannot_be_withdrawn():
    manager = make_manager()
    first, _ = start(manager, range(9), commit=False)
    assert manager.is_withdrawable(first)
    second, hit = start(manager, [*range(8), 50], commit=False)
    assert hit.num_blocks == 2
    assert not manager.is_withdrawable(first) and manager.is_withdrawable(second)
    manager.commit()
    assert manager.is_withdrawable(first)
