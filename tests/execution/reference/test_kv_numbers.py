"""Vectors in each number format: how many bytes they take, and what is left of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo.execution.reference.kv_numbers import FORMATS
from octavo.kv.spec import KVDtype

CODES = [KVDtype.INT8, KVDtype.FP8]
finite = st.floats(-(2.0**99), 2.0**99, width=32)


@pytest.mark.parametrize("dtype", KVDtype)
@pytest.mark.parametrize("shape", [(40,), (3, 8), (2, 3, 64)])
def test_vectors_take_the_bytes_that_the_spec_counts(dtype: KVDtype, shape: tuple[int, ...]) -> None:
    vectors = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    raw = FORMATS[dtype].encode(vectors)
    assert raw.dtype == np.uint8
    assert raw.shape == (*shape[:-1], dtype.vector_bytes(shape[-1]))
    assert FORMATS[dtype].decode(raw).shape == shape


@given(vector=arrays(np.float32, 16, elements=finite))
def test_int8_is_off_by_half_a_step_of_the_largest_over_127(vector: np.ndarray) -> None:
    kept = FORMATS[KVDtype.INT8].decode(FORMATS[KVDtype.INT8].encode(vector))
    largest = np.abs(vector).max()
    assert (np.abs(kept - vector) <= largest / 254 * 1.0001 + 2.0**-119).all()
    assert ((kept == 0) | (np.sign(kept) == np.sign(vector))).all()


@given(vector=arrays(np.float32, 16, elements=finite))
def test_fp8_is_off_by_a_sixteenth_of_the_number_or_by_half_its_smallest_step(vector: np.ndarray) -> None:
    kept = FORMATS[KVDtype.FP8].decode(FORMATS[KVDtype.FP8].encode(vector))
    step = np.abs(vector).max() / 448 * 2.0**-9
    assert (np.abs(kept - vector) <= np.maximum(np.abs(vector) / 16, step / 2) * 1.0001 + 2.0**-119).all()
    assert ((kept == 0) | (np.sign(kept) == np.sign(vector))).all()


@pytest.mark.parametrize("dtype", CODES)
@given(vector=arrays(np.float32, 16, elements=finite))
def test_what_was_kept_is_kept_as_it_is(dtype: KVDtype, vector: np.ndarray) -> None:
    """Up to a last bit of the scale."""
    once = FORMATS[dtype].decode(FORMATS[dtype].encode(vector))
    np.testing.assert_allclose(FORMATS[dtype].decode(FORMATS[dtype].encode(once)), once, rtol=3e-7, atol=2.0**-118)


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("spoilt", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_nan_and_its_neighbours_are_not(dtype: KVDtype, spoilt: float) -> None:
    vectors = np.ones((3, 8), np.float32)
    vectors[1, 5] = spoilt
    kept = FORMATS[dtype].decode(FORMATS[dtype].encode(vectors))
    assert np.isnan(kept[1]).all()
    assert (kept[[0, 2]] == 1).all()


@pytest.mark.parametrize("dtype", CODES)
def test_zeros_stay_zeros(dtype: KVDtype) -> None:
    vectors = np.array([np.zeros(8), np.full(8, 1e-40), np.full(8, -1e-37)], np.float32)
    raw = FORMATS[dtype].encode(vectors)
    assert (raw[0] == 0).all()
    assert (FORMATS[dtype].decode(raw) == 0).all()
