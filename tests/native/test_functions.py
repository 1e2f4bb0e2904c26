"""Elementary functions and 16-bit floats: close to the mathematics, and one set of bits on every instruction set."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from octavo import _native

Float32 = npt.NDArray[np.float32]
ISAS = _native.available_isas()


def spread(count: int, seed: int = 0) -> Float32:
    """Numbers of all magnitudes and signs, with the awkward ones."""
    rng = np.random.default_rng(seed)
    wide = rng.standard_normal(count) * 10.0 ** rng.uniform(-6, 2, count)
    special = [0.0, -0.0, 1e-40, -1e-40, 87.0, -87.0, 88.0, -88.5, 200.0, -200.0, np.inf, -np.inf, 0.625, -0.625]
    return np.concatenate([wide, special]).astype(np.float32)


def exact(function: str, x: Float32) -> npt.NDArray[np.float64]:
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        if function == "exp":
            return np.exp(wide)
        if function == "tanh":
            return np.tanh(wide)
        if function == "silu":
            return wide / (1 + np.exp(-wide))
        if function == "gelu":
            return np.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in wide])
        return 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("function", "tolerance"), [("exp", 3e-7), ("tanh", 5e-7), ("silu", 6e-7)])
def test_functions_are_accurate(function: str, tolerance: float, isa: str) -> None:
    x = spread(20_000)
    x = x[np.abs(x) < 80]
    np.testing.assert_allclose(_native.evaluate(function, x, isa), exact(function, x), rtol=tolerance, atol=1e-37)


@pytest.mark.parametrize("isa", ISAS)
def test_exact_gelu_is_accurate(isa: str) -> None:
    """Far in the left tail an ulp of x^2 / 2 costs as much times x^2 / 2 of what is next to nothing by then."""
    x = spread(20_000)
    near, far = x[np.abs(x) < 3], x[np.abs(x) < 12]
    np.testing.assert_allclose(_native.evaluate("gelu", near, isa), exact("gelu", near), rtol=7e-7, atol=1e-37)
    np.testing.assert_allclose(_native.evaluate("gelu", far, isa), exact("gelu", far), rtol=6e-6, atol=1e-37)
    ends = _native.evaluate("gelu", np.array([np.nan, -1000, 1000, np.inf], np.float32), isa)
    assert np.isnan(ends[0])
    assert list(ends[1:]) == [0, 1000, np.inf]


@pytest.mark.parametrize("isa", ISAS)
def test_relu(isa: str) -> None:
    x = spread(1000)
    np.testing.assert_array_equal(_native.evaluate("relu", x, isa), np.maximum(x, 0))
    assert np.isnan(_native.evaluate("relu", np.array([np.nan], np.float32), isa)[0])


@pytest.mark.parametrize("isa", ISAS)
def test_gelu_is_accurate(isa: str) -> None:
    """Where the gate is nearly shut, an ulp of u = x (1 + 0.044715 x^2) costs e^-2u as much times 2u."""
    x = spread(20_000)
    x = x[np.abs(x) < 40]
    np.testing.assert_allclose(_native.evaluate("gelu_tanh", x, isa), exact("gelu_tanh", x), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("isa", ISAS)
def test_the_ends_of_the_range(isa: str) -> None:
    x = np.array([np.nan, -np.inf, -1000, 0, np.inf], np.float32)
    e = _native.evaluate("exp", x, isa)
    assert np.isnan(e[0])
    assert list(e[1:4]) == [0, 0, 1]
    assert e[4] > 1e38
    t = _native.evaluate("tanh", x, isa)
    assert np.isnan(t[0])
    assert list(t[1:]) == [-1, -1, 0, 1]
    assert np.isnan(_native.evaluate("silu", x, isa)[0])
    assert np.isnan(_native.evaluate("gelu_tanh", x, isa)[0])


@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa != "portable"])
@pytest.mark.parametrize("function", ["exp", "tanh", "silu", "gelu_tanh", "gelu", "relu"])
def test_every_instruction_set_gives_the_portable_bits(function: str, isa: str) -> None:
    for count in (0, 1, 7, 8, 9, 15, 17, 31, 100_003):
        x = spread(count, seed=count)
        portable, other = _native.evaluate(function, x, "portable"), _native.evaluate(function, x, isa)
        np.testing.assert_array_equal(portable.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("isa", ISAS)
def test_every_half_survives_a_round_trip(isa: str) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore"):
        x = halves.astype(np.float32)
    finite = ~np.isnan(x)
    out = _native.round_trip("fp16", x, isa)
    np.testing.assert_array_equal(out[finite].view(np.uint32), x[finite].view(np.uint32))
    assert np.isnan(out[~finite]).all()


@pytest.mark.parametrize("isa", ISAS)
def test_rounding_to_half_is_to_nearest_even(isa: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ties = (np.arange(65536, dtype=np.uint32) << 13 | 0x1000).astype(np.uint32)[:0x3F800] + np.uint32(0x33000000)
    x = np.concatenate([x[~np.isnan(x)], ties.view(np.float32), np.array([65504, 65519.99, 65520, 6e-8], np.float32)])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(_native.round_trip("fp16", x, isa).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("isa", ISAS)
def test_rounding_to_bfloat16_is_to_nearest_even(isa: str) -> None:
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    finite = np.isfinite(x)
    expected = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)
    np.testing.assert_array_equal(_native.round_trip("bf16", x, isa).view(np.uint32)[finite], expected[finite])
    assert np.isnan(_native.round_trip("bf16", x[np.isnan(x)], isa)).all()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="isa='sse9': must be"):
        _native.evaluate("exp", np.zeros(1, np.float32), "sse9")
    with pytest.raises(ValueError, match="function='sin' is not known"):
        _native.evaluate("sin", np.zeros(1, np.float32), "auto")


def e4m3_magnitudes() -> Float32:
    """The 127 finite values of e4m3fn without sign, smallest first: equal steps to 2^-6, then eight a binade."""
    subnormal = np.arange(8) * 2.0**-9
    normal = [(1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8)][:-1]
    return np.concatenate([subnormal, normal]).astype(np.float32)


CODES = {"int8": np.arange(128, dtype=np.float32), "fp8": e4m3_magnitudes() / 256}
"""What codes can say, without sign; fp8 counts in 1/256 (csrc/base/codes.h)."""


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type_name", CODES)
def test_every_code_survives_a_round_trip(type_name: str, isa: str) -> None:
    x = np.concatenate([CODES[type_name], -CODES[type_name]])
    expected = x if type_name == "fp8" else x + np.float32(0)  # integers have no negative zero
    np.testing.assert_array_equal(_native.round_trip(type_name, x, isa).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type_name", CODES)
def test_rounding_to_codes_is_to_nearest_even(type_name: str, isa: str) -> None:
    codes = CODES[type_name]
    middles = (codes[:-1] + codes[1:]) / 2
    rng = np.random.default_rng(3)
    beside = [np.nextafter(middles, np.float32(side)) for side in (0, 1000)]
    top = np.nextafter(codes[-1:], np.float32(1000))  # as far above the largest code as rounding gets
    wide = codes[-1] * rng.random(20_000) ** np.array([[1], [4], [12]])
    size = np.concatenate([middles, *beside, top, wide.reshape(-1)]).astype(np.float32)
    x = size * rng.choice(np.array([-1, 1], np.float32), len(size))
    below = np.clip(np.searchsorted(codes, size, "right") - 1, 0, len(codes) - 2)
    up, down = codes[below + 1].astype(np.float64) - size, size - codes[below].astype(np.float64)
    index = np.where((up < down) | ((up == down) & (below % 2 == 1)), below + 1, below)
    np.testing.assert_array_equal(_native.round_trip(type_name, x, isa), np.copysign(codes[index], x))
