"""Paged attention against the obvious computation, and its rows against themselves in any company."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.execution.protocols import Float32
from octavo.execution.reference.kv_numbers import FORMATS
from octavo.kv.spec import KVDtype
from tests.effort import LONG, times
from tests.execution.native.rig import ISAS, AttentionCase, AttentionRig, Setting, bits


def top_of(vectors: Float32) -> Float32:
    return np.abs(vectors).max(axis=-1, keepdims=True)


def as_int8(vectors: Float32) -> Float32:
    return np.rint(vectors * (np.float32(127) / top_of(vectors))) * (top_of(vectors) / np.float32(127))


def as_fp8(vectors: Float32) -> Float32:
    """Three bits behind the leading one, but none below 2^-9 of a vector that is scaled to 448."""
    numbers = vectors * (np.float32(448) / top_of(vectors))
    exponent = np.maximum(np.frexp(numbers)[1] - 1, -6)
    return np.ldexp(np.rint(np.ldexp(numbers, 3 - exponent)), exponent - 3) * (top_of(vectors) / np.float32(448))


ROUNDED: dict[KVDtype, Callable[[Float32], Float32]] = {
    KVDtype.FP32: lambda x: x,
    KVDtype.FP16: lambda x: x.astype(np.float16).astype(np.float32),
    KVDtype.BF16: lambda x: ((bits(x) + 0x7FFF + (bits(x) >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32),
    KVDtype.INT8: as_int8,
    KVDtype.FP8: as_fp8,
}


@lru_cache(maxsize=1)  # asked for by every instruction set in turn
def expected(case: AttentionCase) -> list[Float32]:
    """In double precision, from K and V as the cache holds them."""
    tables = case.tables()
    keep = ROUNDED[case.dtype]
    out = []
    firsts = np.concatenate(([0], np.cumsum(case.lengths)))
    for first, length in zip(firsts[:-1], case.lengths, strict=True):
        q, k, v = (tables[name][first : first + length].astype(np.float64) for name in "qkv")
        k, v = (x.reshape(length, case.kv_heads, case.head_dim) for x in (k, v))
        k, v = (keep(x.astype(np.float32)).astype(np.float64) for x in (k, v))
        q = q.reshape(length, case.kv_heads, -1, case.head_dim)
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


def in_turn() -> list[tuple[AttentionCase, str]]:
    """Every shape in every format by one instruction set, so that each set meets every shape and every format; in long
    runs by all."""
    cases = [replace(case, dtype=dtype) for case in SHAPES for dtype in KVDtype]
    turns = [i + j for i in range(len(SHAPES)) for j in range(len(KVDtype))]
    return [
        (case, isa)
        for case, turn in zip(cases, turns, strict=True)
        for k, isa in enumerate(ISAS)
        if LONG or turn % len(ISAS) == k
    ]


@pytest.mark.parametrize(("case", "isa"), in_turn(), ids=str)
def test_attention_equals_the_obvious_computation(case: AttentionCase, isa: str) -> None:
    rig = AttentionRig(case, Setting(isa=isa))
    tolerance = (
        1e-4 if case.size > 1 else 1e-5
    )  # float32 scores of size s are off by 1e-7 s, and their exponentials too
    for got, want in zip(rig.whole(), expected(case), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


BIT_CASES = [
    AttentionCase(lengths=(530, 268, 33), heads=9, kv_heads=3, dtype=KVDtype.FP16),
    AttentionCase(lengths=(530, 300), heads=4, kv_heads=1, head_dim=256, window=100, dtype=KVDtype.FP16),
    AttentionCase(lengths=(300, 90), heads=14, kv_heads=2, dtype=KVDtype.BF16, softcap=5.0),
    AttentionCase(lengths=(300, 90), heads=2, kv_heads=2, head_dim=80),
    AttentionCase(lengths=(300, 90), heads=50, kv_heads=1, head_dim=32, window=70),
    AttentionCase(lengths=(300, 90), heads=4, kv_heads=2, block_size=4, window=40),
    AttentionCase(lengths=(530, 90, 33), heads=9, kv_heads=3, dtype=KVDtype.INT8),
    AttentionCase(lengths=(300, 90), heads=50, kv_heads=1, head_dim=40, window=70, dtype=KVDtype.INT8),
    AttentionCase(lengths=(300, 90), heads=4, kv_heads=2, block_size=1, dtype=KVDtype.INT8, softcap=5.0),
    AttentionCase(lengths=(530, 90), heads=14, kv_heads=2, block_size=64, dtype=KVDtype.FP8),
    AttentionCase(lengths=(300, 90), heads=4, kv_heads=1, head_dim=256, window=100, dtype=KVDtype.FP8),
    AttentionCase(lengths=(300, 90), heads=6, kv_heads=2, head_dim=80, block_size=8, dtype=KVDtype.FP8),
]


@pytest.fixture(scope="module", params=BIT_CASES, ids=str)
def reference_rows(request: pytest.FixtureRequest) -> tuple[AttentionCase, list[Float32]]:
    return request.param, AttentionRig(request.param, Setting(threads=1, isa=ISAS[-1])).whole()


def assert_same_bits(got: list[Float32], want: list[Float32]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(bits(a), bits(b))


@pytest.mark.parametrize("setting", [*(Setting(2, isa) for isa in ISAS), Setting(1), Setting(3)], ids=str)
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


RUNS = (2, 3, 5, 9, 17, 24, 25)
"""A token and its drafts: one piece of rows or several, by partition and (the last one) whole."""


@pytest.mark.parametrize("isa", ISAS)
def test_verifying_drafts_gives_the_bits_of_the_prompt(
    reference_rows: tuple[AttentionCase, list[Float32]], isa: str
) -> None:
    case, want = reference_rows
    rig = AttentionRig(case, Setting(threads=2, isa=isa))
    rig.in_cuts([(length,) for length in case.lengths])  # writes K and V
    for run in RUNS:
        firsts = [max(1, length - 4 * run) for length in case.lengths]
        cuts = [(*range(first + run, length, run), length) for first, length in zip(firsts, case.lengths, strict=True)]
        tails = [rows[first:] for first, rows in zip(firsts, want, strict=True)]
        assert_same_bits(rig.in_cuts(cuts, firsts), tails)


@settings(max_examples=times(5))
@given(data=st.data())
def test_any_cuts_give_the_same_bits(reference_rows: tuple[AttentionCase, list[Float32]], data: st.DataObject) -> None:
    case, want = reference_rows
    ends = [sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=6), label="cuts")) for length in case.lengths]
    setting = Setting(threads=data.draw(st.integers(1, 3)))
    cuts = [(*cut, length) for cut, length in zip(ends, case.lengths, strict=True)]
    assert_same_bits(AttentionRig(case, setting).in_cuts(cuts), want)


@pytest.mark.parametrize(
    ("dtype", "spoilt"),
    [
        (KVDtype.FP32, np.nan),
        (KVDtype.INT8, np.nan),
        (KVDtype.INT8, np.inf),
        (KVDtype.FP8, np.nan),
        (KVDtype.FP8, -np.inf),
    ],
)
@pytest.mark.parametrize("window", [None, 20])
def test_nothing_outside_a_rows_view_reaches_it(window: int | None, dtype: KVDtype, spoilt: float) -> None:
    """Later tokens of the same prompt, and what other requests left in a block, may be NaN."""
    case = AttentionCase(lengths=(90, 40), window=window, dtype=dtype)
    want = AttentionRig(case).whole()
    tables = case.tables()
    for name in "kv":
        tables[name][60, ::5] = spoilt
    rig = AttentionRig(case, tables=tables)
    rows = rig.whole()[0]
    seen_again = 60 + window if window else 90
    np.testing.assert_array_equal(bits(rows[:60]), bits(want[0][:60]))
    assert np.isnan(rows[60:seen_again]).all()
    np.testing.assert_array_equal(bits(rows[seen_again:]), bits(want[0][seen_again:]))
    rig.tables[1] = rig.tables[0][3:]  # a second sequence moves into blocks that hold the NaN
    np.testing.assert_array_equal(bits(rig.step([(1, 0, 11)])[0]), bits(want[1][:11]))


def awkward_vectors(count: int, size: int) -> Float32:
    """Of all magnitudes; some zero, some with one large number, some too small for a scale."""
    rng = np.random.default_rng(4)
    vectors = rng.standard_normal((count, size)) * 10.0 ** rng.uniform(-30, 30, (count, 1))
    vectors[::7] *= 10.0 ** rng.uniform(-6, 0, vectors[::7].shape)
    vectors[1] = 0
    vectors[2, 1:] = 0
    vectors[3] = np.arange(size) * 1e-39
    vectors[4] = np.linspace(-3e38, 3e38, size)
    vectors[5] = -vectors[6]
    return vectors.astype(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("head_dim", [64, 40])
@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("dtype", [KVDtype.BF16, KVDtype.INT8, KVDtype.FP8])
def test_a_token_alone_gets_the_value_that_the_reference_keeps(
    dtype: KVDtype, block_size: int, head_dim: int, isa: str
) -> None:
    """It attends to itself with weight 1."""
    count = 60
    values = awkward_vectors(count, head_dim)
    zeros = np.zeros_like(values)
    case = AttentionCase(
        lengths=(1,) * count, heads=1, kv_heads=1, head_dim=head_dim, dtype=dtype, block_size=block_size
    )
    rig = AttentionRig(case, Setting(isa=isa), tables={"q": zeros, "k": zeros, "v": values})
    kept = FORMATS[dtype].decode(FORMATS[dtype].encode(values))
    got = np.concatenate(rig.step([(s, 0, 1) for s in range(count)]))
    np.testing.assert_array_equal(got, kept)
    assert (np.abs(kept - values) <= np.abs(values).max(axis=1, keepdims=True) * 0.04 + 2.0**-119).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [KVDtype.INT8, KVDtype.FP8])
def test_keys_of_all_magnitudes_score_as_they_should(dtype: KVDtype, isa: str) -> None:
    """Tokens with keys of zeros, of tiny and of large numbers stand in one tile: each keeps its own scale."""
    case = AttentionCase(lengths=(64,), heads=2, kv_heads=1, dtype=dtype)
    tables = case.tables()
    tables["k"] *= 10.0 ** np.random.default_rng(5).uniform(-8, 0.5, (64, 1)).astype(np.float32)
    tables["k"][::9] = 0
    tables["k"][1::9] *= np.float32(1e-38)
    (got,) = AttentionRig(case, Setting(isa=isa), tables=tables).whole()
    codec = FORMATS[dtype]
    k, v = (codec.decode(codec.encode(tables[name])).astype(np.float64) for name in "kv")
    scores = case.scale * np.einsum("thd,sd->hts", tables["q"].reshape(64, 2, 64).astype(np.float64), k)
    scores[:, np.arange(64)[:, None] < np.arange(64)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("hts,sd->thd", weights / weights.sum(-1, keepdims=True), v).reshape(64, -1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", KVDtype)
@pytest.mark.parametrize("block_size", [16, 64])
def test_blocks_take_the_bytes_that_the_spec_counts(dtype: KVDtype, block_size: int) -> None:
    case = AttentionCase(lengths=(100,), heads=5, kv_heads=5, head_dim=40, dtype=dtype, block_size=block_size)
    executor = AttentionRig(case, num_blocks=33).executor
    layout = executor.layout
    assert executor.num_bytes["kv"] == 33 * layout.bytes_per_block
    assert layout.bytes_per_block == block_size * layout.groups[0].spec.bytes_per_token(dtype)
