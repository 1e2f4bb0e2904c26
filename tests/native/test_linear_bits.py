"""The promise at its root: an output has the same bits in any company, tile range and instruction set."""

from functools import cache

import numpy as np
import pytest

from octavo._native import linear
from tests.native.linear_cases import (
    ALL_TYPES,
    INTEGER_TYPES,
    ISAS,
    SUPER_TYPES,
    random_rows,
    random_weight,
    run,
    same_bits,
)

ROWS = 300  # more than two blocks of rows
COMPANY = (*range(1, 15), 16, 17, 20, 21, 25, 33, 129, 300)
OUTPUTS = 53  # no multiple of any tile width


def inputs_of(tensor_type):
    return 301 if tensor_type.block_size == 1 else 1024 if tensor_type in SUPER_TYPES else 1056


@pytest.fixture(scope="module", params=ALL_TYPES, ids=lambda t: t.name)
def case(request):
    """(weight, x, the portable result of all rows)."""
    k = inputs_of(request.param)
    weight, x = random_weight(request.param, OUTPUTS, k, seed=1), random_rows(ROWS, k, seed=2)
    return weight, x, run(weight, x, "portable")


@pytest.mark.parametrize("isa", ISAS)
def test_any_company_and_place(case, isa):
    weight, x, expected = case
    rng = np.random.default_rng(3)
    for rows in COMPANY:
        if isa == "portable" and rows > 33:
            continue
        for start in {0, ROWS - rows, *rng.integers(0, ROWS - rows + 1, 4).tolist()}:
            part = slice(start, start + rows)
            assert same_bits(run(weight, x[part], isa), expected[part]), (rows, start)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 3, 8, 30])
def test_tile_ranges_write_their_outputs_only(case, isa, rows):
    weight, x, expected = case
    cols = weight.packed.tile_cols
    for begin in range(weight.packed.num_tiles + 1):
        for end in range(begin, weight.packed.num_tiles + 1):
            y = run(weight, x[:rows], isa, tiles=(begin, end))
            inside = slice(begin * cols, min(end * cols, OUTPUTS))
            assert same_bits(y[:, inside], expected[:rows, inside])
            assert np.isnan(np.delete(y, np.arange(OUTPUTS)[inside], 1)).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 19])
def test_bias_then_addition_each_rounded_once(case, isa, rows):
    weight, x, products = case
    rng = np.random.default_rng(4)
    bias, before = (
        rng.standard_normal(OUTPUTS).astype(np.float32),
        rng.standard_normal((rows, OUTPUTS)).astype(np.float32),
    )
    assert same_bits(run(weight, x[:rows], isa, bias=bias), products[:rows] + bias)
    for given, expected in ((None, products[:rows] + before), (bias, (products[:rows] + bias) + before)):
        y = before.copy()
        linear.run(weight.packed, x[:rows], y, bias=given, add=True, isa=isa)
        assert same_bits(y, expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 9])
def test_wider_rows_of_outputs_are_left_alone(case, isa, rows):
    weight, x, expected = case
    y = np.full((rows, OUTPUTS + 11), 7, np.float32)
    linear.run(weight.packed, x[:rows], y, isa=isa)
    assert same_bits(y[:, :OUTPUTS].copy(), expected[:rows])
    assert (y[:, OUTPUTS:] == 7).all()


@pytest.mark.parametrize("tensor_type", INTEGER_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [5, 30, 121])
def test_columns_too_long_for_the_caches_are_cut_without_a_trace(long_case, tensor_type, isa, rows):
    weight, x, expected = long_case(tensor_type)
    assert same_bits(run(weight, x[:rows], isa), expected[:rows])


@pytest.fixture(scope="module")
def long_case():
    """tensor_type -> (weight, x, the portable result) of more inputs than a path keeps at once."""

    @cache
    def make(tensor_type):
        weight, x = random_weight(tensor_type, 17, 7168, seed=5), random_rows(121, 7168, seed=6)
        return weight, x, run(weight, x, "portable")

    return make
