"""What cached state costs and how far layers look back, by kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.spec import AttentionSpec, CacheGroup, KVDtype, LatentSpec, RecurrentSpec, bytes_per_token, lay_out

FULL = AttentionSpec(num_kv_heads=4, head_dim=128)
SLIDING = AttentionSpec(num_kv_heads=4, head_dim=128, window=512)
CHUNKED = AttentionSpec(num_kv_heads=4, head_dim=128, chunk=64)
LATENT = LatentSpec(latent_dim=512, rope_dim=64)
STATE = RecurrentSpec(state_bytes=1 << 20)

specs = st.one_of(
    st.integers(1, 40).map(lambda window: AttentionSpec(num_kv_heads=1, head_dim=4, window=window)),
    st.integers(1, 40).map(lambda chunk: AttentionSpec(num_kv_heads=1, head_dim=4, chunk=chunk)),
    st.sampled_from([FULL, LATENT, STATE]),
)


def test_bytes_of_a_token():
    assert FULL.bytes_per_token(KVDtype.FP16) == SLIDING.bytes_per_token(KVDtype.FP16) == 2 * 4 * 128 * 2
    assert FULL.bytes_per_token(KVDtype.FP32) == 2 * 4 * 128 * 4
    assert FULL.bytes_per_token(KVDtype.INT8) == FULL.bytes_per_token(KVDtype.FP8) == 2 * 4 * (128 + 4)
    assert LATENT.bytes_per_token(KVDtype.FP8) == (512 + 4) + (64 + 4)
    assert LATENT.bytes_per_token(KVDtype.BF16) == (512 + 64) * 2, "once, for K and V and all heads"
    assert STATE.bytes_per_token(KVDtype.FP16) == 0


def test_bytes_of_a_block():
    assert FULL.bytes_per_block(16, KVDtype.FP16) == 16 * 2048
    assert LATENT.bytes_per_block(16, KVDtype.BF16) == 16 * 1152
    assert STATE.bytes_per_block(16, KVDtype.FP16) == STATE.bytes_per_block(64, KVDtype.FP32) == 1 << 20
    assert CacheGroup(spec=LATENT, num_layers=3).bytes_per_block(16, KVDtype.BF16) == 3 * 16 * 1152
    groups = (CacheGroup(spec=FULL, num_layers=2), CacheGroup(spec=STATE, num_layers=6))
    assert bytes_per_token(groups, KVDtype.FP16) == 2 * 2048


def test_a_block_is_as_large_as_the_largest_kind_needs():
    """One snapshot of a hybrid's recurrent layers stands beside 16 tokens of its attention layer."""
    layout = lay_out((STATE, STATE, STATE, FULL), num_blocks=9, block_size=16, dtype=KVDtype.FP16)
    assert [group.num_layers for group in layout.groups] == [1, 1, 1, 1]
    assert layout.bytes_per_block == 1 << 20
    assert lay_out((LATENT,) * 4, num_blocks=9, block_size=16, dtype=KVDtype.BF16).bytes_per_block == 4 * 16 * 1152


def test_a_layer_has_a_window_or_chunks():
    with pytest.raises(ValueError, match="window=8, chunk=16"):
        AttentionSpec(num_kv_heads=1, head_dim=8, window=8, chunk=16)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (FULL, {0: 0, 511: 0, 100_000: 0}),
        (SLIDING, {0: 0, 511: 0, 512: 1, 600: 89}),
        (CHUNKED, {0: 0, 63: 0, 64: 64, 127: 64, 128: 128}),
        (LATENT, {0: 0, 100_000: 0}),
        (STATE, {0: 0, 1: 0, 16: 15, 17: 16}),
    ],
    ids=["full", "sliding", "chunked", "latent", "recurrent"],
)
def test_how_far_a_position_looks_back(spec, expected):
    assert {position: spec.first_needed(position) for position in expected} == expected


@given(specs, st.integers(0, 200))
def test_reach_bounds_what_a_position_needs_and_it_never_falls(spec, position):
    first = spec.first_needed(position)
    assert 0 <= first <= position
    assert spec.first_needed(position + 1) >= first
    if spec.reach is None:
        assert first == 0
    else:
        assert position - first + 1 <= spec.reach


@given(specs, st.integers(1, 120), st.integers(1, 50), st.sampled_from([1, 2, 4, 16]), st.data())
def test_most_blocks_is_never_passed(spec, num_tokens, most, size, data):
    """Any walk through the tokens in steps of at most `most`; blocks are let go of when one gets full."""
    group = CacheGroup(spec=spec, num_layers=1)
    limit = group.most_blocks(num_tokens, most, size)
    assert limit <= -(-num_tokens // size) == group.most_blocks(num_tokens, None, size)
    computed = 0
    while computed < num_tokens:
        end = min(num_tokens, computed + data.draw(st.integers(1, most)))
        held = -(-end // size) - spec.first_needed(computed // size * size) // size
        assert held <= limit
        computed = end


@pytest.mark.parametrize(
    ("window", "step", "blocks"), [(512, 1, 33), (512, 1024, 97), (513, 1, 33), (514, 1, 34), (1, 1, 1)]
)
def test_most_blocks_of_a_window(window, step, blocks):
    group = CacheGroup(spec=AttentionSpec(num_kv_heads=1, head_dim=8, window=window), num_layers=1)
    assert group.most_blocks(100_000, step, 16) == blocks


def test_a_long_gemma3_request_holds_what_its_windows_need():
    """18 layers, 15 of them with a window of 512: 6 groups, of which one keeps everything."""
    kinds = [AttentionSpec(num_kv_heads=1, head_dim=256, window=None if i % 6 == 5 else 512) for i in range(18)]
    layout = lay_out(tuple(kinds), num_blocks=1000, block_size=16, dtype=KVDtype.FP16)
    assert [group.spec.window for group in layout.groups] == [512] * 5 + [None]
    assert layout.blocks_per_request(3000) == 6 * 188
    assert layout.blocks_per_request(3000, 1) == 188 + 5 * 33
    assert layout.blocks_per_request(3000, 256) == 188 + 5 * 49


SMALL = AttentionSpec(num_kv_heads=2, head_dim=64)


def two_models(first, second):
    return lay_out(tuple(first), beside=tuple(second), num_blocks=9, block_size=16, dtype=KVDtype.FP16)


def test_layers_of_a_second_model_share_the_tables_of_those_with_equal_needs():
    """A model of 28 layers and a smaller one of 24 take one block per 16 tokens, as large as both need."""
    layout = two_models([FULL] * 28, [SMALL] * 24)
    assert len(layout.groups) == 1
    assert layout.bytes_per_block == 16 * (28 * 2048 + 24 * 512)
    assert layout.placement[27:29] == ((0, 27), (0, 28))
    assert (layout.layer_spec(27), layout.layer_spec(28)) == (FULL, SMALL)
    assert bytes_per_token(layout.groups, KVDtype.FP16) == 28 * 2048 + 24 * 512


def test_one_layer_beside_many_costs_one_layer():
    layout = two_models([FULL] * 32, [FULL])
    assert layout.groups[0].layers == (FULL,) * 33
    assert layout.layers_per_block == 33


def test_layers_with_windows_are_spread_over_the_groups_that_have_them():
    kinds = [SLIDING if i % 6 != 5 else FULL for i in range(18)]
    layout = two_models(kinds, kinds)
    assert [len(group.layers) for group in layout.groups] == [6] * 6
    assert layout.bytes_per_block == 2 * two_models(kinds, []).bytes_per_block
    assert len(set(layout.placement)) == 36


def test_layers_with_needs_of_their_own_have_groups_of_their_own():
    layout = two_models([FULL] * 4, [SLIDING] * 6)
    assert [group.layers for group in layout.groups] == [(FULL,) * 4, (SLIDING,) * 4, (SLIDING,) * 2]


def test_groups_of_their_own_where_sharing_would_make_all_blocks_larger():
    """Five groups with windows would carry the room for the one that is shared."""
    kinds = [SLIDING if i % 6 != 5 else FULL for i in range(18)]
    layout = two_models(kinds, [FULL] * 3)
    assert len(layout.groups) == 7, "not 6 of 6 places"
    assert layout.layers_per_block == 3
    narrow = AttentionSpec(num_kv_heads=1, head_dim=8)
    assert len(two_models(kinds, [narrow]).groups) == 6


@given(st.lists(st.sampled_from([FULL, SLIDING, CHUNKED, SMALL, LATENT]), min_size=1, max_size=12),
       st.lists(st.sampled_from([FULL, SLIDING, SMALL, LATENT]), max_size=12))  # fmt: skip
def test_every_layer_has_a_place_of_its_own_that_is_large_enough(first, second):
    layout = two_models(first, second)
    assert len(set(layout.placement)) == len(first) + len(second)
    for layer, spec in enumerate((*first, *second)):
        group, place = layout.placement[layer]
        assert layout.layer_spec(layer) == spec
        assert layout.groups[group].spec.reach == spec.reach
        assert layout.place_bytes[place] >= spec.bytes_per_block(16, KVDtype.FP16)
    alone = lay_out(tuple(first), num_blocks=9, block_size=16, dtype=KVDtype.FP16)
    assert layout.placement[: len(first)] == alone.placement, "the first model's layers stand where they did"
