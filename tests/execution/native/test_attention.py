"""Paged attention against the obvious computation, and its rows against themselves in any company."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.execution.protocols import Float32
from octavo.kv.spec import KVDtype
from tests.execution.native.rig import ISAS, AttentionCase, AttentionRig, Setting, bits

ROUNDED = {
    KVDtype.FP32: lambda x: x,
    KVDtype.FP16: lambda x: x.astype(np.float16).astype(np.float32),
    KVDtype.BF16: lambda x: ((bits(x) + 0x7FFF + (bits(x) >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32),
}


def expected(case: AttentionCase) -> list[Float32]:
    """In double precision, from K and V as the cache holds them."""
    tables = case.tables()
    keep = ROUNDED[case.dtype]
    out = []
    firsts = np.concatenate(([0], np.cumsum(case.lengths)))
    for first, length in zip(firsts[:-1], case.lengths, strict=True):
        q, k, v = (tables[name][first : first + length].astype(np.float64) for name in "qkv")
        k, v = (keep(x.astype(np.float32)).astype(np.float64) for x in (k, v))
        q = q.reshape(length, case.kv_heads, -1, case.head_dim)
        k, v = (x.reshape(length, case.kv_heads, case.head_dim) for x in (k, v))
        scores = case.scale * np.einsum("tkhd,skd->khts", q, k)
        if case.softcap is not None:
            scores = case.softcap * np.tanh(scores / case.softcap)
        t, s = np.arange(length)[:, None], np.arange(length)[None]
        hidden = (s > t) | (s <= t - (case.window or length))
        scores[:, :, hidden] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out.append(np.einsum("khts,skd->tkhd", weights, v).reshape(length, -1))
    return out


SHAPES = [
    AttentionCase(lengths=(1, 2, 16, 17)),
    AttentionCase(lengths=(70, 300), heads=3, kv_heads=3),
    AttentionCase(lengths=(300,), heads=9, kv_heads=3),
    AttentionCase(lengths=(300, 65), heads=14, kv_heads=2),
    AttentionCase(lengths=(270,), heads=4, kv_heads=1, head_dim=256),
    AttentionCase(lengths=(130,), heads=8, kv_heads=1, head_dim=128),
    AttentionCase(lengths=(130,), heads=5, kv_heads=5, head_dim=80),
    AttentionCase(lengths=(100,), heads=2, kv_heads=1, head_dim=96),
    AttentionCase(lengths=(90,), heads=4, kv_heads=2, head_dim=32),
    AttentionCase(lengths=(90,), heads=4, kv_heads=2, head_dim=40),
    AttentionCase(lengths=(90,), heads=71, kv_heads=1, head_dim=32),
    AttentionCase(lengths=(90,), heads=100, kv_heads=2, head_dim=8),
    AttentionCase(lengths=(400, 129), window=1),
    AttentionCase(lengths=(400, 129), window=7),
    AttentionCase(lengths=(400, 129), window=64),
    AttentionCase(lengths=(700,), window=256, heads=3, kv_heads=1),
    AttentionCase(lengths=(400,), window=300, heads=6, kv_heads=2),
    AttentionCase(lengths=(200,), softcap=3.0),
    AttentionCase(lengths=(200,), softcap=0.5, window=50),
    AttentionCase(lengths=(300,), size=6.0),
    AttentionCase(lengths=(150,), block_size=1),
    AttentionCase(lengths=(150,), block_size=8, window=33),
    AttentionCase(lengths=(150, 20), block_size=32),
    AttentionCase(lengths=(150, 300), block_size=256),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KVDtype)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_attention_equals_the_obvious_computation(case: AttentionCase, dtype: KVDtype, isa: str) -> None:
    case = replace(case, dtype=dtype)
    rig = AttentionRig(case, Setting(isa=isa))
    tolerance = (
        1e-4 if case.size > 1 else 1e-5
    )  # float32 scores of size s are off by 1e-7 s, and their exponentials too
    for got, want in zip(rig.whole(), expected(case), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


BIT_CASES = [
    AttentionCase(lengths=(530, 90, 33), heads=9, kv_heads=3, dtype=KVDtype.FP16),
    AttentionCase(lengths=(530, 300), heads=4, kv_heads=1, head_dim=256, window=100, dtype=KVDtype.FP16),
    AttentionCase(lengths=(300, 90), heads=14, kv_heads=2, dtype=KVDtype.BF16, softcap=5.0),
    AttentionCase(lengths=(300, 90), heads=2, kv_heads=2, head_dim=80),
    AttentionCase(lengths=(300, 90), heads=50, kv_heads=1, head_dim=32, window=70),
    AttentionCase(lengths=(300, 90), heads=4, kv_heads=2, block_size=4, window=40),
]


@pytest.fixture(scope="module", params=BIT_CASES, ids=str)
def reference_rows(request: pytest.FixtureRequest) -> tuple[AttentionCase, list[Float32]]:
    return request.param, AttentionRig(request.param, Setting(threads=1, isa=ISAS[-1])).whole()


def assert_same_bits(got: list[Float32], want: list[Float32]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(bits(a), bits(b))


@pytest.mark.parametrize("setting", [Setting(t, isa) for t in (1, 2, 3) for isa in ISAS], ids=str)
def test_threads_and_instruction_sets_give_the_same_bits(
    reference_rows: tuple[AttentionCase, list[Float32]], setting: Setting
) -> None:
    case, want = reference_rows
    rig = AttentionRig(case, setting)
    assert_same_bits(rig.whole(), want)
    assert_same_bits(rig.in_cuts([(length,) for length in case.lengths]), want)


def test_decoding_token_by_token_gives_the_bits_of_the_prompt(
    reference_rows: tuple[AttentionCase, list[Float32]],
) -> None:
    case, want = reference_rows
    tails = [(length - 40, *range(length - 39, length + 1)) if length > 40 else (length,) for length in case.lengths]
    assert_same_bits(AttentionRig(case).in_cuts(tails), want)


@settings(max_examples=10)
@given(data=st.data())
def test_any_cuts_give_the_same_bits(reference_rows: tuple[AttentionCase, list[Float32]], data: st.DataObject) -> None:
    case, want = reference_rows
    ends = [sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=6), label="cuts")) for length in case.lengths]
    setting = Setting(threads=data.draw(st.integers(1, 3)))
    cuts = [(*cut, length) for cut, length in zip(ends, case.lengths, strict=True)]
    assert_same_bits(AttentionRig(case, setting).in_cuts(cuts), want)


@pytest.mark.parametrize("window", [None, 20])
def test_nothing_outside_a_rows_view_reaches_it(window: int | None) -> None:
    """Later tokens of the same prompt, and what other requests left in a block, may be NaN."""
    case = AttentionCase(lengths=(90, 40), window=window)
    want = AttentionRig(case).whole()
    tables = case.tables()
    for name in "kv":
        tables[name][60] = np.nan
    rig = AttentionRig(case, tables=tables)
    rows = rig.whole()[0]
    seen_again = 60 + window if window else 90
    np.testing.assert_array_equal(bits(rows[:60]), bits(want[0][:60]))
    assert np.isnan(rows[60:seen_again]).all()
    np.testing.assert_array_equal(bits(rows[seen_again:]), bits(want[0][seen_again:]))
    rig.tables[1] = rig.tables[0][3:]  # a second sequence moves into blocks that hold the NaN
    np.testing.assert_array_equal(bits(rig.step([(1, 0, 11)])[0]), bits(want[1][:11]))
