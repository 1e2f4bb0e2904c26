from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.gguf_writer import GGUFTensor, Value, write_gguf, write_split_gguf
from octavo.execution.quant import TensorType
from tests.execution.loader.gguf_pieces import sound_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("version", [2, 3])
def test_metadata(path: Path, version: int) -> None:
    metadata = dict(open_checkpoint([sound_file(version).write(path)]).metadata)
    arrays = {key: metadata.pop(key) for key in ("types", "scores", "flags")}
    assert metadata == {
        "general.architecture": "llama", "general.alignment": 32, "value.0": 200, "value.1": -3, "value.2": 60000,
        "value.3": -300, "value.4": 4_000_000_000, "value.5": -70000, "value.6": 1.5, "value.7": True,
        "value.10": 1 << 60, "value.11": -(1 << 60), "value.12": 0.1,
        "words": ["", "a", "Ġgrün", "你好", "x" * 40], "nothing": [],
    }  # fmt: skip
    assert metadata["value.7"] is True
    assert {key: (a.dtype.str, a.tolist()) for key, a in arrays.items()} == {
        "types": ("<i4", [1, -2, 3]),
        "scores": ("<f4", [0.5, -1000.0]),
        "flags": ("|b1", [True, False, True]),
    }


def test_tensors(path: Path) -> None:
    pieces = sound_file()
    checkpoint = open_checkpoint([pieces.write(path)])
    assert checkpoint.format == "gguf"
    assert list(checkpoint.tensors) == ["norm", "linear"]
    norm, linear = checkpoint.tensors.values()
    assert (norm.type, norm.shape, norm.nbytes, norm.file) == (TensorType.F32, (8,), 32, path)
    assert (linear.type, linear.shape, linear.nbytes) == (TensorType.Q8_0, (2, 64), 136)
    assert (norm.offset, linear.offset) == (pieces.offset("data:norm"), pieces.offset("data:linear"))
    assert checkpoint.float32("norm").tolist() == list(range(8))
    assert checkpoint.float32("linear").shape == (2, 64)
    assert checkpoint.raw("linear").tobytes() == bytes(range(136))
    with pytest.raises(KeyError):
        checkpoint.raw("absent")


def test_raw_is_a_view_that_cannot_be_written(path: Path) -> None:
    checkpoint = open_checkpoint([sound_file().write(path)])
    first, second = checkpoint.raw("linear"), checkpoint.raw("linear")
    assert np.shares_memory(first, second)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_views_outlive_the_checkpoint(path: Path) -> None:
    view = open_checkpoint([sound_file().write(path)]).raw("norm")
    path.unlink()
    assert view.view("<f4").tolist() == list(range(8))


def test_tensors_may_lie_in_any_order_and_with_gaps(path: Path) -> None:
    pieces = sound_file().replaced("norm.offset", "Q", 192).replaced("linear.offset", "Q", 0)
    pieces.fields += [("gap", bytes(24 + 32)), ("more", np.arange(8, dtype="<f4").tobytes())]
    checkpoint = open_checkpoint([pieces.write(path)])
    assert checkpoint.tensors["norm"].offset == checkpoint.tensors["linear"].offset + 192


def test_alignment_moves_the_data(path: Path) -> None:
    pieces = sound_file().replaced("general.alignment", "I", 256)
    start = -(-pieces.offset("padding") // 256) * 256
    pieces = pieces.replaced_bytes("padding", bytes(start - pieces.offset("padding")))
    pieces = pieces.replaced_bytes("data:norm", np.arange(8, dtype="<f4").tobytes() + bytes(224))
    pieces = pieces.replaced("linear.offset", "Q", 256)
    assert open_checkpoint([pieces.write(path)]).float32("norm").tolist() == list(range(8))


def test_file_of_the_writer(path: Path) -> None:
    metadata = {"general.architecture": Value("str", "x"), "n": Value("[u16]", [1, 2])}
    raw = np.arange(18, dtype=np.uint8)
    write_gguf(path, metadata, [GGUFTensor("a", TensorType.Q4_0, (1, 32), [raw])])
    checkpoint = open_checkpoint([path])
    assert checkpoint.metadata["n"].tolist() == [1, 2]
    np.testing.assert_array_equal(checkpoint.raw("a"), raw)


def faults() -> list[tuple[str, str, tuple[object, ...], str, str]]:
    """label of the field, layout and values to put there, label of the field that is reported, words of the message."""
    huge = 1 << 62
    return [
        ("version", "I", (1,), "version", "GGUF version 1; Octavo reads versions 2 and 3"),
        ("version", "I", (4,), "version", "GGUF version 4"),
        ("version", "I", (3 << 24,), "version", "big-endian GGUF file; convert it"),
        ("tensor_count", "Q", (huge,), "tensor_count", f"tensor count is {huge}, more than the"),
        ("tensor_count", "Q", (1 << 63,), "tensor_count", "tensor count is"),
        ("pair_count", "Q", (2**64 - 1,), "pair_count", "metadata count is"),
        ("key:words.length", "Q", (huge,), "key:words.length", "length of metadata key 12 is"),
        ("general.architecture.length", "Q", (2**64 - 1,), "general.architecture.length", "length of general.arch"),
        ("general.architecture", "5s", (b"ll\xffma",), "general.architecture", "not UTF-8"),
        ("words[1]", "1s", (b"\x80",), "words[1]", "words\\[1\\] is not UTF-8"),
        ("words[2].length", "Q", (huge,), "words[2].length", "length of words\\[2\\] is"),
        ("words.count", "Q", (1 << 40,), "words.count", "length of words is 1099511627776, more than"),
        ("types.count", "Q", (1 << 61,), "types.count", "length of types is"),
        ("types.kind", "I", (9,), "types.kind", "types is an array of arrays"),
        ("types.kind", "I", (77,), "types.kind", "array of the unknown type 77"),
        ("type:value.4", "I", (13,), "type:value.4", "value.4 has the unknown value type 13"),
        ("value.7", "B", (2,), "value.7", "value.7 is the bool 2, not 0 or 1"),
        ("key:value.1", "7s", (b"value.0",), "key:value.1.length", "metadata key 'value.0' appears twice"),
        ("key:flags.length", "Q", (0,), "key:flags.length", "metadata key 15 is empty"),
        ("norm.num_dims", "I", (0,), "name:norm.length", "has 0 dimensions, not 1 to 4"),
        ("linear.num_dims", "I", (5,), "name:linear.length", "has 5 dimensions, not 1 to 4"),
        ("linear.num_dims", "I", (2**32 - 1,), "name:linear.length", "4294967295 dimensions"),
        ("linear.dim1", "Q", (0,), "name:linear.length", "has the dimensions \\[64, 0\\]"),
        ("linear.dim1", "Q", (1 << 63,), "name:linear.length", "has the dimensions"),
        ("linear.dim0", "Q", (65,), "name:linear.length", "65 weights, not a multiple of the 32"),
        ("linear.dim1", "Q", (1 << 47,), "data:linear", "shape \\[140737488355328, 64\\] in Q8_0 needs"),
        ("linear.type", "I", (12345,), "linear.type", "unknown type 12345"),
        ("linear.offset", "Q", (33,), "data:norm", "off the alignment of 32"),
        ("linear.offset", "Q", (0,), "data:norm", "tensors 'norm' and 'linear' overlap"),
        ("linear.offset", "Q", (1 << 63,), "", "it is truncated"),
        ("name:norm.length", "Q", (0,), "name:norm.length", "tensor 0 ''"),
    ]


@pytest.mark.parametrize(("label", "layout", "values", "reported", "message"), faults())
def test_fault(path: Path, label: str, layout: str, values: tuple[object, ...], reported: str, message: str) -> None:
    pieces = sound_file()
    pieces.replaced(label, layout, *values).write(path)
    with pytest.raises(ModelFileError, match=message) as caught:
        open_checkpoint([path])
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)
    if reported and reported != "data:norm" and "name:norm" not in label:
        assert caught.value.offset == pieces.offset(reported)


@pytest.mark.parametrize("value", [0, 3, 24, 2**32 - 1])
def test_alignment_must_be_a_power_of_two(path: Path, value: int) -> None:
    sound_file().replaced("general.alignment", "I", value).write(path)
    with pytest.raises(ModelFileError, match=f"general.alignment is {value}, not a power of two"):
        open_checkpoint([path])


def test_huge_alignment_puts_the_data_past_the_end(path: Path) -> None:
    sound_file().replaced("general.alignment", "I", 1 << 31).write(path)
    with pytest.raises(ModelFileError, match=r"off the alignment|truncated"):
        open_checkpoint([path])


def test_tensor_name_twice(path: Path) -> None:
    raw = np.zeros(32, np.uint8)
    write_gguf(path, {}, [GGUFTensor("twin", TensorType.F32, (8,), [raw])] * 2)
    with pytest.raises(ModelFileError, match="tensor 'twin' appears twice"):
        open_checkpoint([path])


def test_tensor_name_too_long(path: Path) -> None:
    write_gguf(path, {}, [GGUFTensor("n" * 2000, TensorType.F32, (8,), [np.zeros(32, np.uint8)])])
    with pytest.raises(ModelFileError, match="name of tensor 0 is 2000 bytes long, at most 1024"):
        open_checkpoint([path])


def test_known_type_that_is_not_read(path: Path) -> None:
    sound_file().replaced("linear.type", "I", 40).write(path)
    with pytest.raises(UnsupportedModelError, match=r"'linear' is stored as NVFP4.*take a file in one of F32, F16"):
        open_checkpoint([path])


# --- split files -------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    tensors = [GGUFTensor(f"t{i}", TensorType.F32, (8,), [np.full(8, i, "<f4").view(np.uint8)]) for i in range(5)]
    return write_split_gguf(tmp_path / "big.gguf", {"general.architecture": Value("str", "llama")}, tensors, 3)


def test_split_file_in_any_order(parts: list[Path]) -> None:
    checkpoint = open_checkpoint([parts[2], parts[0], parts[1]])
    assert [path.name for path in parts] == [f"big-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert list(checkpoint.tensors) == ["t0", "t1", "t2", "t3", "t4"]
    assert [checkpoint.float32(name)[0] for name in checkpoint.tensors] == [0, 1, 2, 3, 4]
    assert {info.file for info in checkpoint.tensors.values()} == set(parts)
    assert checkpoint.metadata["general.architecture"] == "llama"


def test_part_missing(parts: list[Path]) -> None:
    with pytest.raises(ModelFileError, match="split model of 3 files; missing: part 2, 3"):
        open_checkpoint(parts[:1])


def test_part_twice(parts: list[Path]) -> None:
    with pytest.raises(ModelFileError, match="same part number as"):
        open_checkpoint([*parts, parts[1]])


def test_foreign_part(parts: list[Path], tmp_path: Path) -> None:
    other = sound_file().write(tmp_path / "other.gguf")
    with pytest.raises(ModelFileError, match="not part of the same 3-part model"):
        open_checkpoint([*parts[:2], other])


def test_two_whole_files_are_no_split_model(tmp_path: Path) -> None:
    paths = [sound_file().write(tmp_path / name) for name in ("a.gguf", "b.gguf")]
    with pytest.raises(ModelFileError, match="same part number as"):
        open_checkpoint(paths)


def test_tensor_in_two_parts(tmp_path: Path) -> None:
    tensors = [GGUFTensor("same", TensorType.F32, (8,), [np.zeros(32, np.uint8)])] * 2
    with pytest.raises(ModelFileError, match="tensor 'same' is also in"):
        open_checkpoint(write_split_gguf(tmp_path / "m.gguf", {}, tensors, 2))


def test_parts_with_fewer_tensors_than_announced(parts: list[Path], tmp_path: Path) -> None:
    split = {"split.no": Value("u16", 2), "split.count": Value("u16", 3), "split.tensors.count": Value("i32", 5)}
    write_gguf(parts[2], split, [])
    with pytest.raises(ModelFileError, match="announces 5 tensors, all parts together hold 3"):
        open_checkpoint(parts)


def test_part_number_of_a_foreign_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, {"split.count": Value("str", "three")}, [])
    with pytest.raises(ModelFileError, match=r"split.count is 'three', not a part number"):
        open_checkpoint([path])
