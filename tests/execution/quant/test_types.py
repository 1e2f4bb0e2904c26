import pytest

from octavo.execution.quant import TensorType
from octavo.execution.quant.layout import LAYOUTS


def test_block_bytes_are_those_of_the_layouts() -> None:
    assert {t: t.block_bytes for t in LAYOUTS} == {t: layout.itemsize for t, layout in LAYOUTS.items()}


def test_sizes_are_those_of_the_public_package() -> None:
    gguf = pytest.importorskip("gguf")
    for t in filter(lambda t: t.is_in_files, TensorType):
        theirs = gguf.GGMLQuantizationType[t.name]
        assert (theirs.value, *gguf.GGML_QUANT_SIZES[theirs]) == (t.ggml_id, t.block_size, t.block_bytes)


def test_num_bytes() -> None:
    assert TensorType.Q4_1.num_bytes((3, 64)) == 3 * 2 * 20
    assert TensorType.F16.num_bytes((5,)) == 10
    assert TensorType.F32.num_bytes(()) == 4
    assert TensorType.Q6_K.num_bytes((2, 3, 256)) == 6 * 210


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match=r"row of 48 weights is not a whole number of Q8_0 blocks of 32"):
        TensorType.Q8_0.num_bytes((32, 48))


def test_from_ggml() -> None:
    for t in TensorType:
        assert TensorType.from_ggml(t.ggml_id) is (t if t.ggml_id < 1000 else None)
    assert TensorType.from_ggml(9) is None


def test_formats_of_our_own_are_in_no_file() -> None:
    assert {t.name for t in TensorType if not t.is_in_files} == {"Z4", "S8", "F8"}


def test_float_formats() -> None:
    assert {t.name for t in TensorType if t.is_float} == {"F32", "F16", "BF16", "F8"}


def test_bits_per_weight() -> None:
    assert TensorType.Q4_K.bits_per_weight == 4.5
    assert TensorType.BF16.bits_per_weight == 16
