"""Every number format: rows decode to its numbers, products agree with float64 and with the documented sequence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo._native import linear
from octavo.execution.quant.dequantize import dequantize, half_power
from octavo.execution.quant.layout import LAYOUTS, blocks_of
from octavo.execution.quant.multiples import read_multiples
from octavo.execution.quant.packing import unpack, unpack_q3_scales, unpack_scales_and_mins
from octavo.execution.quant.types import TensorType
from tests.effort import times
from tests.native.linear_cases import (
    ALL_TYPES,
    AVAILABLE_ISAS,
    FLOAT_TYPES,
    GROUP,
    INTEGER_TYPES,
    ISAS,
    SUPER_TYPES,
    UNSIGNED_ZERO,
    fma32,
    random_bytes,
    random_rows,
    random_weight,
    run,
    same_bits,
)

SIGNED_TYPES = {
    TensorType.Q8_0,
    TensorType.S8,
    TensorType.IQ4_NL,
    TensorType.IQ4_XS,
    TensorType.MXFP4,
    TensorType.Q3_K,
    TensorType.Q6_K,
}


def by_name(tensor_type):
    return tensor_type.name


def inputs_of(tensor_type):
    """A k that has a rest in every loop of the kernels."""
    return 301 if tensor_type.block_size == 1 else 1024 if tensor_type in SUPER_TYPES else 33 * GROUP


def activations_seen(tensor_type, x):
    """What the kernel multiplies with, as float64."""
    if tensor_type in FLOAT_TYPES:
        return x.astype(np.float64)
    codes, s, *_ = linear.quantize(x, isa="portable")
    return codes * np.repeat(s.astype(np.float64), GROUP, axis=1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tensor_type", ALL_TYPES, ids=by_name)
def test_rows_decode_to_the_formats_numbers(tensor_type, isa):
    weight = random_weight(tensor_type, 37, 512, seed=1)
    rows = np.stack([linear.dequantize_row(weight.packed, row, isa=isa) for row in range(weight.n)])
    np.testing.assert_array_equal(rows, weight.values)


@pytest.mark.parametrize("tensor_type", [t for t in INTEGER_TYPES if t.is_in_files], ids=by_name)
def test_rows_decode_as_the_public_gguf_package_does(tensor_type):
    gguf = pytest.importorskip("gguf")
    weight = random_weight(tensor_type, 3, 512, seed=2)
    raw = weight.raw.reshape(weight.n, -1)
    theirs = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(tensor_type.ggml_id))
    for row in range(weight.n):
        np.testing.assert_array_equal(linear.dequantize_row(weight.packed, row, isa="portable"), theirs[row])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("tensor_type", ALL_TYPES, ids=by_name)
def test_products_agree_with_float64(tensor_type, rows, isa):
    k = inputs_of(tensor_type)
    weight, x = random_weight(tensor_type, 53, k, seed=3), random_rows(rows, k, seed=4)
    w = weight.values.astype(np.float64)
    seen = activations_seen(tensor_type, x)
    # Formats with a minimum add and take away more than the sum of |x w|: their codes are unsigned.
    size = np.abs(seen) @ (np.abs(w) + np.abs(w).max(1, keepdims=True)).T
    y = run(weight, x, isa)
    assert (np.abs(y - seen @ w.T) <= 1e-6 * size).all()
    exact = x.astype(np.float64) @ w.T
    norm = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * np.linalg.norm(w, axis=1)[None]
    assert (np.abs(y - exact) <= 0.02 * norm).all()


def float_products(weight, x):
    acc = np.zeros((len(x), weight.n), np.float32)
    for i in range(weight.k):
        acc = fma32(x[:, i : i + 1], weight.values[None, :, i], acc)
    return acc


def scales_and_minima(weight):
    """(d, m) per group, float32 [n, k / 32], of a format with a minimum."""
    blocks = blocks_of(weight.tensor_type, weight.raw).reshape(weight.n, -1)
    d = blocks["d"].astype(np.float32)
    if weight.tensor_type in UNSIGNED_ZERO:
        return d, -np.float32(UNSIGNED_ZERO[weight.tensor_type]) * d
    if weight.tensor_type is TensorType.Z4:
        return d, -(d * blocks["zero"].astype(np.float32))
    if weight.tensor_type in SUPER_TYPES:
        scales, minima = unpack_scales_and_mins(blocks["scales"].reshape(-1, 12))
        shape = (weight.n, weight.k // GROUP)
        m = -(np.repeat(blocks["dmin"].astype(np.float32), 8, 1) * minima.reshape(shape).astype(np.float32))
        return np.repeat(d, 8, 1) * scales.reshape(shape).astype(np.float32), m
    return d, blocks["m"].astype(np.float32)


def minimum_products(weight, x):
    codes, s, sm, *_ = linear.quantize(x, isa="portable")
    d, m = scales_and_minima(weight)
    acc = np.zeros((len(x), weight.n), np.float32)
    for g in range(weight.k // GROUP):
        a = codes[:, g * GROUP : (g + 1) * GROUP].astype(np.float64)
        w = weight.values[:, g * GROUP : (g + 1) * GROUP].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            unsigned = np.where(d[:, g, None] == 0, 0, np.rint((w - m[:, g, None]) / d[:, g, None].astype(np.float64)))
        acc = fma32(m[None, :, g], sm[:, g, None], acc)
        acc = fma32((a @ unsigned.T).astype(np.float32), d[None, :, g] * s[:, g, None], acc)
    return acc


def signed_scales(weight):
    """(inputs per scale, scales) of a format without minimum."""
    blocks = blocks_of(weight.tensor_type, weight.raw).reshape(weight.n, -1)
    if weight.tensor_type is TensorType.MXFP4:
        return GROUP, half_power(blocks["e"])
    d = blocks["d"].astype(np.float32)
    if weight.tensor_type not in SUPER_TYPES:
        return GROUP, d
    if weight.tensor_type is TensorType.IQ4_XS:
        return GROUP, read_multiples(weight.tensor_type, blocks.reshape(-1)).scales[:, ::2].reshape(weight.n, -1)
    scales = blocks["scales"]
    if weight.tensor_type is TensorType.Q3_K:
        scales = unpack_q3_scales(scales.reshape(-1, 12))
    return GROUP // 2, np.repeat(d, 16, 1) * scales.reshape(weight.n, -1).astype(np.float32)


def signed_products(weight, x):
    """A scale per 32 or per 16 inputs, signed codes, no minimum."""
    codes, s, *_ = linear.quantize(x, isa="portable")
    step, d = signed_scales(weight)
    acc = np.zeros((len(x), weight.n), np.float32)
    for g in range(weight.k // step):
        a = codes[:, g * step : (g + 1) * step].astype(np.float64)
        w = weight.values[:, g * step : (g + 1) * step].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            signed = np.where(d[:, g, None] == 0, 0, np.rint(w / d[:, g, None].astype(np.float64)))
        scale = s[:, g * step // GROUP]
        acc = fma32((a @ signed.T).astype(np.float32), d[None, :, g] * scale[:, None], acc)
    return acc


def two_minima_products(weight, x):
    """Q2_K: unsigned codes, a scale and a minimum per 16 inputs."""
    codes, s, *_ = linear.quantize(x, isa="portable")
    blocks = blocks_of(weight.tensor_type, weight.raw).reshape(weight.n, -1)
    packed = blocks["scales"].reshape(weight.n, -1)
    d = np.repeat(blocks["d"].astype(np.float32), 16, 1) * (packed & 15).astype(np.float32)
    m = -(np.repeat(blocks["dmin"].astype(np.float32), 16, 1) * (packed >> 4).astype(np.float32))
    unsigned = unpack(blocks["qs"].reshape(-1, 64), 2, 32).reshape(weight.n, -1).astype(np.float64)
    acc = np.zeros((len(x), weight.n), np.float32)
    for h in range(weight.k // 16):
        inputs, scale = slice(16 * h, 16 * h + 16), s[:, h // 2, None]
        a = codes[:, inputs].astype(np.float64)
        acc = fma32(m[None, :, h], scale * a.sum(1, keepdims=True).astype(np.float32), acc)
        acc = fma32((a @ unsigned[:, inputs].T).astype(np.float32), d[None, :, h] * scale, acc)
    return acc


def documented_products(weight, x):
    if weight.tensor_type in FLOAT_TYPES:
        return float_products(weight, x)
    if weight.tensor_type in SIGNED_TYPES:
        return signed_products(weight, x)
    if weight.tensor_type is TensorType.Q2_K:
        return two_minima_products(weight, x)
    return minimum_products(weight, x)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tensor_type", ALL_TYPES, ids=by_name)
def test_products_have_the_bits_of_the_documented_sequence(tensor_type, isa):
    k = inputs_of(tensor_type)
    weight, x = random_weight(tensor_type, 21, k, seed=5), random_rows(5, k, seed=6)
    assert same_bits(run(weight, x, isa), documented_products(weight, x))


def f8_row(codes):
    """One row of F8 with these codes, under a scale that is no power of two."""
    blocks = np.zeros(len(codes) // 32, LAYOUTS[TensorType.F8])
    blocks["d"], blocks["qs"] = 0.3, codes.reshape(-1, 32)
    return blocks.view(np.uint8)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [3, 192])
def test_every_number_of_eight_bits(isa, rows):
    """Each row of x picks one code, subnormal ones too, and gets its number."""
    raw = f8_row(np.delete(np.arange(256, dtype=np.uint8).reshape(8, 32), (3, 7), axis=0).reshape(-1))
    x, y = np.eye(192, dtype=np.float32), np.zeros((192, 1), np.float32)
    packed = linear.pack(TensorType.F8.ggml_id, raw, 1, 192)
    for start in range(0, 192, rows):
        linear.run(packed, x[start : start + rows], y[start : start + rows], isa=isa)
    assert same_bits(y[:, 0] + 0, dequantize(TensorType.F8, raw, (192,)) + 0)


def test_a_number_that_is_nan_makes_its_block_nan():
    raw = f8_row(np.array([1] * 32 + [127] + [1] * 31, dtype=np.uint8))
    packed = linear.pack(TensorType.F8.ggml_id, raw, 1, 64)
    row = linear.dequantize_row(packed, 0, isa="portable")
    assert not np.isnan(row[:32]).any() and np.isnan(row[32:]).all()
    np.testing.assert_array_equal(row, dequantize(TensorType.F8, raw, (64,)))


@pytest.mark.parametrize("tensor_type", ALL_TYPES, ids=by_name)
def test_row_order_permutes_outputs(tensor_type):
    weight, x = random_weight(tensor_type, 45, 256, seed=7), random_rows(2, 256, seed=8)
    order = np.random.default_rng(9).permutation(45).astype(np.int32)
    permuted = linear.pack(tensor_type.ggml_id, weight.raw, 45, 256, order)
    y = np.empty((2, 45), np.float32)
    linear.run(permuted, x, y, isa="portable")
    assert same_bits(y, run(weight, x, "portable")[:, order])
    np.testing.assert_array_equal(linear.dequantize_row(permuted, 4, isa="portable"), weight.values[order[4]])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tensor_type", INTEGER_TYPES, ids=by_name)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_poisoned_row_is_nan_throughout_and_alone(tensor_type, isa, poison):
    weight, x = random_weight(tensor_type, 20, 512, seed=10), random_rows(9, 512, seed=11)
    clean = run(weight, x, isa)
    x[6, 300] = poison
    y = run(weight, x, isa)
    assert np.isnan(y[6]).all()
    assert same_bits(np.delete(y, 6, 0), np.delete(clean, 6, 0))


@settings(max_examples=times(30), deadline=None, derandomize=True)
@given(
    tensor_type=st.sampled_from(ALL_TYPES),
    n=st.integers(1, 70),
    blocks=st.integers(1, 5),
    rows=st.integers(1, 20),
    seed=st.integers(0, 2**16),
)
def test_any_shape(tensor_type, n, blocks, rows, seed):
    k = blocks * 7 if tensor_type.block_size == 1 else blocks * tensor_type.block_size
    weight, x = random_weight(tensor_type, n, k, seed), random_rows(rows, k, seed + 1)
    expected = documented_products(weight, x)
    for isa in AVAILABLE_ISAS:
        assert same_bits(run(weight, x, isa), expected)


def test_packed_memory_per_weight():
    bits = {t: linear.pack(t.ggml_id, random_bytes(t, 32, 256, np.random.default_rng(0)), 32, 256) for t in ALL_TYPES}
    measured = {t.name: 8 * p.num_bytes / (32 * 256) for t, p in bits.items()}
    assert measured == {
        "F32": 32, "F16": 16, "BF16": 16, "F8": 9, "Q4_0": 4.5, "Q4_1": 5, "Q5_0": 5.5, "Q5_1": 6, "Q8_0": 8.5,
        "Q2_K": 2.625, "Q3_K": 3.5625, "Q4_K": 4.625, "Q5_K": 5.625, "Q6_K": 6.5625,
        "IQ4_NL": 4.5, "IQ4_XS": 4.5625, "MXFP4": 5, "Z4": 5, "S8": 9,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tensor_type", "k", "message"),
    [
        (TensorType.Q4_0, 48, r"\[8, 48\].*blocks of 32 inputs"),
        (TensorType.Q6_K, 128, r"\[8, 128\].*blocks of 256 inputs"),
        (TensorType.F8, 48, r"\[8, 48\].*blocks of 32 inputs"),
        (TensorType.IQ2_XXS, 256, r"no kernel for GGUF type 16"),
        (TensorType.F32, 0, r"must be positive"),
    ],
    ids=str,
)
def test_shapes_and_types_without_a_kernel_are_refused(tensor_type, k, message):
    with pytest.raises(ValueError, match=message):
        linear.pack(tensor_type.ggml_id, np.zeros(16, np.uint8), 8, k)


def test_arguments_that_do_not_fit_are_refused():
    weight, x = random_weight(TensorType.Q4_0, 20, 64, seed=12), random_rows(2, 64, seed=13)
    with pytest.raises(ValueError, match="raw has 3 bytes"):
        linear.pack(2, np.zeros(3, np.uint8), 20, 64)
    with pytest.raises(ValueError, match="row outside the weight"):
        linear.pack(2, weight.raw, 20, 64, np.full(20, 20, np.int32))
    with pytest.raises(ValueError, match="x must have 64 columns"):
        run(weight, x[:, :32].copy(), "portable")
    with pytest.raises(ValueError, match=r"tiles \[0, 3\) outside \[0, 2\)"):
        run(weight, x, "portable", tiles=(0, 3))
    with pytest.raises(ValueError, match="one entry per output"):
        run(weight, x, "portable", bias=np.zeros(3, np.float32))
