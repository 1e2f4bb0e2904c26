"""The order in which GGUF files of the llama architecture hold the rows of q and k."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.model.sources import UnpermuteHeads


@given(heads=st.integers(1, 5), half=st.integers(1, 8))
def test_unpermuting_undoes_the_converter(heads: int, half: int) -> None:
    """The converter views a head's rows as [2, half] and swaps the two axes."""
    original = np.arange(heads * 2 * half)
    in_file = original.reshape(heads, 2, half).swapaxes(1, 2).reshape(-1)
    assert (in_file[UnpermuteHeads(heads, 2 * half, 2 * half).row_order()] == original).all()


@given(heads=st.integers(1, 4), half=st.integers(1, 6), rest=st.integers(0, 6))
def test_the_order_is_a_permutation_within_each_head(heads: int, half: int, rest: int) -> None:
    width = 2 * half + rest
    order = np.array(UnpermuteHeads(heads, width, 2 * half).row_order()).reshape(heads, width)
    assert (np.sort(order, axis=1) == np.arange(heads * width).reshape(heads, width)).all()
    assert (order[:, 2 * half :] == np.arange(heads * width).reshape(heads, width)[:, 2 * half :]).all()
