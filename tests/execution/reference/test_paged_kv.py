"""KV memory: what is written at a slot is read at its position, in the layout's number format."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.execution.reference.paged_kv import PagedKV
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.scheduling.plan import BlockCopy

FULL = AttentionSpec(num_kv_heads=2, head_dim=4)
SLIDING = AttentionSpec(num_kv_heads=3, head_dim=2, window=5)
BLOCK = 4


def layout(dtype: KVDtype = KVDtype.FP32) -> KVLayout:
    """Three groups of one layer: full, and two sliding ones with smaller tokens."""
    return lay_out((SLIDING, FULL, SLIDING), num_blocks=9, block_size=BLOCK, dtype=dtype)


def width(kv_layout: KVLayout, layer: int) -> int:
    spec = kv_layout.groups[kv_layout.placement[layer][0]].spec
    return spec.num_kv_heads * spec.head_dim


def write_sequence(kv: PagedKV, kv_layout: KVLayout, layer: int, blocks: np.ndarray, tokens: int, seed: int):
    rng = np.random.default_rng(seed)
    k, v = rng.standard_normal((2, tokens, width(kv_layout, layer)), np.float32)
    positions = np.arange(tokens, dtype=np.int32)
    kv.write(layer, blocks[positions // BLOCK] * BLOCK + positions % BLOCK, k, v)
    return k, v


@given(data=st.data(), layer=st.integers(0, 2), seed=st.integers(0, 5))
def test_any_range_reads_back(data: st.DataObject, layer: int, seed: int) -> None:
    first = data.draw(st.integers(0, 10))
    stop = data.draw(st.integers(first + 1, 11))
    kv = PagedKV(layout())
    table = np.random.default_rng(seed).permutation(np.arange(1, 9, dtype=np.int32))[:3]
    written = write_sequence(kv, layout(), layer, table, 11, seed)
    for got, want in zip(kv.read(layer, table, first, stop), written, strict=True):
        assert (got.reshape(len(got), -1) == want[first:stop]).all()


def test_groups_in_different_blocks_leave_each_other_alone() -> None:
    kv_layout = layout()
    kv = PagedKV(kv_layout)
    tables = {0: np.array([1, 4], np.int32), 1: np.array([2, 3], np.int32), 2: np.array([6, 5], np.int32)}
    written = {layer: write_sequence(kv, kv_layout, layer, table, 8, layer) for layer, table in tables.items()}
    for layer, table in tables.items():
        k, v = kv.read(layer, table, 0, 8)
        assert (k.reshape(8, -1) == written[layer][0]).all()
        assert (v.reshape(8, -1) == written[layer][1]).all()


@pytest.mark.parametrize(("dtype", "bits"), [(KVDtype.FP32, 23), (KVDtype.FP16, 10), (KVDtype.BF16, 7)], ids=str)
def test_values_are_rounded_to_the_dtype(dtype: KVDtype, bits: int) -> None:
    kv_layout = layout(dtype)
    kv = PagedKV(kv_layout)
    table = np.array([3, 1], np.int32)
    k, _ = write_sequence(kv, kv_layout, 1, table, 8, 0)
    got = kv.read(1, table, 0, 8)[0].reshape(8, -1)
    assert (np.abs(got - k) <= np.abs(k) * 2.0 ** -(bits + 1) * 1.0001).all()
    assert (got == k).all() == (dtype is KVDtype.FP32)


@pytest.mark.parametrize("dtype", [KVDtype.FP16, KVDtype.INT8, KVDtype.FP8])
def test_a_copy_takes_the_first_tokens_in_all_layers_of_the_group(dtype: KVDtype) -> None:
    kv_layout = lay_out((FULL, FULL), num_blocks=4, block_size=BLOCK, dtype=dtype)
    kv = PagedKV(kv_layout)
    for layer in (0, 1):
        write_sequence(kv, kv_layout, layer, np.array([1], np.int32), 4, layer)
        write_sequence(kv, kv_layout, layer, np.array([2], np.int32), 4, layer + 10)
    before = [kv.read(layer, np.array([block], np.int32), 0, 4) for layer in (0, 1) for block in (1, 2)]
    kv.copy_blocks([BlockCopy(group=0, source=1, target=2, num_tokens=3)])
    after = [kv.read(layer, np.array([block], np.int32), 0, 4) for layer in (0, 1) for block in (1, 2)]
    for layer in (0, 1):
        for which in (0, 1):
            source, target = before[2 * layer][which], before[2 * layer + 1][which]
            assert (after[2 * layer][which] == source).all()
            assert (after[2 * layer + 1][which][:3] == source[:3]).all()
            assert (after[2 * layer + 1][which][3:] == target[3:]).all()
