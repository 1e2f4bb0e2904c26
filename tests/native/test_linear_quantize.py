"""int8 activations: the documented rounding, the edges of its range, the same bits on every instruction set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo._native import linear
from tests.effort import times
from tests.native.linear_cases import GROUP, ISAS, random_rows


def documented(x):
    """(codes, s, sm, isum, half) as csrc/linear/linear.h describes them, for finite x."""
    groups = x.reshape(len(x), -1, GROUP)
    amax = np.abs(groups).max(-1)
    used = amax >= np.float32(2.0**-119)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(used, np.float32(127) / amax, np.float32(0))
    codes = np.where(used[..., None], np.rint(groups * inverse[..., None]), 0).astype(np.int32)
    s = np.where(used, amax / np.float32(127), np.float32(0))
    isum = codes.sum(-1, dtype=np.int32)
    with np.errstate(over="ignore"):  # near the largest float, s * sum(q) may be infinite
        sm = s * isum.astype(np.float32)
    return codes.reshape(x.shape), s, sm, isum, codes[..., :16].sum(-1, dtype=np.int32)


def assert_documented(x, isa):
    for name, got, expected in zip(
        ("q", "s", "sm", "isum", "half"), linear.quantize(x, isa=isa), documented(x), strict=True
    ):
        np.testing.assert_array_equal(got, expected, err_msg=name)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("rows", "k"), [(1, 32), (3, 96), (5, 640), (130, 64)])
def test_codes_and_sums_are_the_documented_ones(isa, rows, k):
    x = random_rows(rows, k, seed=rows)
    assert_documented(x, isa)
    assert linear.quantize(x, isa=isa)[0].min() >= -127


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=times(60), deadline=None, derandomize=True)
@given(x=arrays(np.float32, (1, GROUP), elements=finite))
def test_any_finite_group(isa, x):
    assert_documented(x, isa)


@pytest.mark.parametrize("isa", ISAS)
def test_ties_go_to_even_and_the_largest_magnitude_to_127(isa):
    x = np.zeros((1, GROUP), np.float32)
    x[0, :8] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -127]
    assert linear.quantize(x, isa=isa)[0][0, :8].tolist() == [127, 0, 2, 2, 0, -2, -2, -127]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("poison", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_marks_its_group_only(isa, poison):
    x = random_rows(4, 96, seed=3)
    clean = linear.quantize(x, isa=isa)
    x[2, 40] = poison
    codes, s, sm, isum, half = linear.quantize(x, isa=isa)
    assert np.isnan(s[2, 1]) and np.isnan(sm[2, 1])
    assert not codes[2, 32:64].any() and isum[2, 1] == 0 and half[2, 1] == 0
    kept = np.ones((4, 3), bool)
    kept[2, 1] = False
    np.testing.assert_array_equal(s[kept], clean[1][kept])
    np.testing.assert_array_equal(codes.reshape(4, 3, GROUP)[kept], clean[0].reshape(4, 3, GROUP)[kept])


def test_refusals_name_what_is_wrong():
    with pytest.raises(ValueError, match="multiple of 32"):
        linear.quantize(np.zeros((1, 33), np.float32), isa="portable")
    with pytest.raises(ValueError, match="isa='sse'"):
        linear.quantize(np.zeros((1, 32), np.float32), isa="sse")
