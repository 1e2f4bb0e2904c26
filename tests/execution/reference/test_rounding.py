"""Activations as the integer kernels see them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo.execution.reference.rounding import round_activations

GROUPS = arrays(np.float32, (2, 64), elements=st.floats(-1000, 1000, width=32))


@given(x=GROUPS)
def test_the_error_is_at_most_half_a_step_of_the_group(x: np.ndarray) -> None:
    steps = np.abs(x.reshape(2, 2, 32)).max(axis=-1, keepdims=True) / 127
    error = np.abs(round_activations(x) - x).reshape(2, 2, 32)
    assert (error <= steps * 0.5001 + 2.0**-119).all()


@given(x=GROUPS)
def test_rows_and_groups_do_not_see_each_other(x: np.ndarray) -> None:
    rounded = round_activations(x)
    alone = np.concatenate([round_activations(x[1:, :32]), round_activations(x[1:, 32:])], axis=1)
    assert (rounded[1:] == alone).all()


def test_ties_go_to_the_even_code() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :5] = 127, 0.5, 1.5, 2.5, -0.5
    assert round_activations(x)[0, :5].tolist() == [127, 0, 2, 2, 0]


def test_zero_tiny_and_broken_groups() -> None:
    x = np.zeros((3, 32), np.float32)
    x[1] = 2.0**-120
    x[2, 3] = np.inf
    rounded = round_activations(x)
    assert (rounded[:2] == 0).all()
    assert np.isnan(rounded[2]).all()


def test_no_rows_are_no_rows() -> None:
    assert round_activations(np.zeros((0, 64), np.float32)).shape == (0, 64)
