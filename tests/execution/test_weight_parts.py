"""Weights that stand in a part of a tensor, or turned."""

import numpy as np
import pytest

from octavo.errors import UnsupportedModelError
from octavo.execution.quant import TensorType, dequantize, quantize
from octavo.execution.weight_parts import StoredMatrix, matrix_part, vector_part
from octavo.model.sources import AddOne, Columns, OnlyRow, Rows, Stacked, Transposed, UnpermuteHeads, WeightSource

FUSED = (12, 64)
FLOATS = [TensorType.F32, TensorType.F16, TensorType.BF16]


def stored(tensor_type: TensorType, values: np.ndarray) -> StoredMatrix:
    raw = quantize(tensor_type, values.astype(np.float32))
    return StoredMatrix.of("fused.weight", tensor_type, values.shape, raw)


def matrix(shape: tuple[int, int] = FUSED) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def values_of(part: StoredMatrix, shape: tuple[int, int]) -> np.ndarray:
    assert part.raw.size == part.type.num_bytes(shape)
    return dequantize(part.type, part.raw, shape)


@pytest.mark.parametrize("tensor_type", [*FLOATS, TensorType.Q8_0, TensorType.Q4_1])
def test_rows_are_a_view_of_the_file(tensor_type: TensorType) -> None:
    whole = stored(tensor_type, matrix())
    part = matrix_part(whole, Rows(4, 9, 12), (5, 64))
    assert np.shares_memory(part.raw, whole.raw)
    assert (values_of(part, (5, 64)) == values_of(whole, FUSED)[4:9]).all()


@pytest.mark.parametrize("tensor_type", FLOATS)
@pytest.mark.parametrize("rows", [None, Rows(16, 48, 64)])
def test_a_turned_matrix_keeps_its_bits(tensor_type: TensorType, rows: Rows | None) -> None:
    whole = stored(tensor_type, matrix())
    wanted = values_of(whole, FUSED).T[slice(None) if rows is None else slice(rows.start, rows.stop)]
    part = matrix_part(whole, Transposed(rows), wanted.shape)
    assert part.type is tensor_type
    assert (values_of(part, wanted.shape) == wanted).all()


def test_blocks_cannot_be_turned() -> None:
    with pytest.raises(UnsupportedModelError, match=r"fused\.weight is stored as \[in, out\] in Q8_0.*F32, F16, BF16"):
        matrix_part(stored(TensorType.Q8_0, matrix()), Transposed(), (64, 12))


def test_parts_of_vectors() -> None:
    values = np.arange(6, dtype=np.float32)
    assert vector_part(values, Rows(2, 4, 6)).tolist() == [2, 3]
    assert vector_part(values, AddOne()).tolist() == [1, 2, 3, 4, 5, 6]
    assert vector_part(values, None) is values
    with pytest.raises(ValueError, match="Transposed"):
        vector_part(values, Transposed())


@pytest.mark.parametrize(
    ("transform", "shape", "in_file"),
    [
        (None, (4, 8), (4, 8)),
        (UnpermuteHeads(1, 4, 4), (4, 8), (4, 8)),
        (Columns(0, 8, 24), (4, 8), (4, 24)),
        (Rows(4, 8, 12), (4, 8), (12, 8)),
        (Rows(4, 8, 12), (4,), (12,)),
        (Transposed(), (4, 8), (8, 4)),
        (Transposed(Rows(0, 4, 12)), (4, 8), (8, 12)),
    ],
)
def test_a_source_knows_the_shape_in_the_file(transform, shape: tuple[int, ...], in_file: tuple[int, ...]) -> None:
    assert WeightSource("t", transform).stored_shape(shape) == in_file


@pytest.mark.parametrize("tensor_type", [TensorType.F32, TensorType.Q4_0])
def test_one_of_many_stacked_matrices_is_a_view(tensor_type: TensorType) -> None:
    values = np.random.default_rng(0).standard_normal((3, 6, 64)).astype(np.float32)
    whole = StoredMatrix.of("w", tensor_type, values.shape, quantize(tensor_type, values))
    stacked = dequantize(tensor_type, whole.raw, (3, 6, 64))
    for transform, wanted in ((Stacked(1, 3), stacked[1]), (Stacked(2, 3, Rows(4, 6, 6)), stacked[2, 4:])):
        part = matrix_part(whole, transform, wanted.shape)
        assert np.may_share_memory(part.raw, whole.raw)
        np.testing.assert_array_equal(dequantize(tensor_type, part.raw, wanted.shape), wanted)


def test_a_matrix_of_one_row_may_be_stored_as_a_vector() -> None:
    vector = StoredMatrix.of("w", TensorType.F32, (8,), np.arange(8, dtype=np.float32).view(np.uint8))
    assert matrix_part(vector, OnlyRow(), (1, 8)) == vector
