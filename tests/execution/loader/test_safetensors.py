import json
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ModelError, ModelFileError, UnsupportedModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.open import open_with_integers
from octavo.execution.quant import TensorType
from tests.effort import times

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}
DATA = np.arange(6, dtype="<f4").tobytes() + np.array([0x3F80, 0x4000, 0xC040, 0], "<u2").tobytes()


def file_bytes(header: Any, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(folder: Path, raw: bytes, name: str = "model.safetensors") -> Path:
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / name).write_bytes(raw)
    return folder / name


def test_tensors_and_metadata(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "b": B, "a": A}
    path = write(tmp_path, file_bytes(header))
    checkpoint = open_checkpoint([path])
    assert (checkpoint.format, checkpoint.metadata) == ("safetensors", {"model_type": "llama"})
    assert list(checkpoint.tensors) == ["b", "a"]
    assert (checkpoint.tensors["b"].type, checkpoint.tensors["b"].nbytes) == (TensorType.BF16, 8)
    assert checkpoint.float32("a").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert checkpoint.float32("b").tolist() == [1, 2, -3, 0]
    assert not checkpoint.raw("a").flags.writeable
    assert checkpoint.tensors["a"].offset == path.stat().st_size - len(DATA)


def test_file_of_the_public_package(tmp_path: Path) -> None:
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    tensors = {"x": np.arange(12, dtype=np.float16).reshape(3, 4), "scalar": np.array(2.5, np.float32)}
    write(tmp_path, safetensors_numpy.save(tensors))
    checkpoint = open_checkpoint([tmp_path / "model.safetensors"])
    assert checkpoint.tensors["x"].type is TensorType.F16
    assert {name: checkpoint.float32(name).tolist() for name in tensors} == {n: t.tolist() for n, t in tensors.items()}


def with_a(**changes: object) -> dict[str, object]:
    return {"a": A | changes, "b": B}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"[]", "holds a JSON list, not an object|neither GGUF nor safetensors"),
        (b'{"a": 1', "not valid JSON"),
        (b'{"\xff": 1}', "not UTF-8"),
        (b"{" * 20_000 + b"}", "not valid JSON"),
        (b'{"a":' + b"[" * 100_000, "not valid JSON"),
        (b'{"a": {"dtype": "F32"}, "a": {"dtype": "F32"}}', "the key 'a' appears twice"),
        (b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b"]}}", "not valid JSON"),
        ({"a": 3}, "entry 'a' is no object"),
        (with_a(dtype=7), "'a' has the unknown dtype 7"),
        (with_a(dtype="F31"), "'a' has the unknown dtype 'F31'"),
        (with_a(shape="2x3"), "shape of tensor 'a' is no list of at most 8 sizes"),
        (with_a(shape=[2, -3]), "shape of tensor 'a'"),
        (with_a(shape=[2.0, 3]), "shape of tensor 'a'"),
        (with_a(shape=[True, 6]), "shape of tensor 'a'"),
        (with_a(shape=[1] * 9), "shape of tensor 'a'"),
        (with_a(shape=[1 << 60, 3]), "shape of tensor 'a'"),
        (with_a(shape=[2, 4]), r"shape \[2, 4\] in F32 is 32 bytes, its data_offsets are \[0, 24\]"),
        (with_a(shape=[1 << 40, 1 << 40]), "its data_offsets are"),
        (with_a(data_offsets=[24, 0]), r"its data_offsets are \[24, 0\]"),
        (with_a(data_offsets=[0]), r"its data_offsets are \[0\]"),
        (with_a(data_offsets=None), "data_offsets of tensor 'a'"),
        ({"a": A, "b": B | {"data_offsets": [16, 24]}}, "tensor 'b' overlaps the tensor before it"),
        ({"a": A, "b": B | {"data_offsets": [32, 40]}}, "tensor 'b' leaves a hole before it"),
        ({"a": A}, "followed by foreign bytes"),
        ({"a": A, "b": B, "c": B | {"data_offsets": [32, 40]}}, "it is truncated. Fetch it again"),
    ],
)
def test_faults(tmp_path: Path, header: Any, message: str) -> None:
    path = write(tmp_path, file_bytes(header))
    with pytest.raises(ModelFileError, match=message) as caught:
        open_checkpoint([path])
    assert caught.value.path == str(path)


def test_dtype_that_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, file_bytes(with_a(dtype="I64")))
    with pytest.raises(
        UnsupportedModelError, match=r"'a' is stored as I64; Octavo reads safetensors in F32, F16, BF16"
    ):
        open_checkpoint([path])


@pytest.mark.parametrize("length", [0, 1, 10_000, 1 << 40, (1 << 64) - 1])
def test_header_length(tmp_path: Path, length: int) -> None:
    path = write(tmp_path, struct.pack("<Q", length) + b"{}" + DATA)
    with pytest.raises(ModelFileError, match=f"header of {length} bytes in a file of"):
        open_checkpoint([path])


SOUND = file_bytes({"a": A, "b": B})


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    for length in range(len(SOUND)):
        path = write(tmp_path, SOUND[:length])
        with pytest.raises(ModelFileError):
            open_checkpoint([path])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=times(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    raw = bytearray(SOUND)
    for at, value in flips:
        raw[at] = value
    path = write(tmp_path, bytes(raw))
    start = time.process_time()
    tracemalloc.start()
    try:
        open_checkpoint([path])
    except ModelError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20
    assert time.process_time() - start < 2


def test_long_shapes_are_not_multiplied(tmp_path: Path) -> None:
    """A product of a million large factors would take minutes."""
    path = write(tmp_path, file_bytes(with_a(shape=[(1 << 47)] * 500_000)))
    start = time.process_time()
    with pytest.raises(ModelFileError, match="shape of tensor 'a'"):
        open_checkpoint([path])
    assert time.process_time() - start < 3


def test_message_stays_short(tmp_path: Path) -> None:
    path = write(tmp_path, file_bytes({"n" * 100_000: 3}))
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint([path])
    assert len(str(caught.value)) < 1000


# --- config.json and shards --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "incomplete"),
        ("{", "not valid JSON"),
        ("[1]", "holds a JSON list, not an object"),
        ("\ud800", "not UTF-8"),
    ],
)
def test_config_faults(tmp_path: Path, config: str | None, message: str) -> None:
    path = write(tmp_path, SOUND)
    if config is None:
        (tmp_path / "config.json").unlink()
    else:
        (tmp_path / "config.json").write_bytes(config.encode("utf-8", "surrogatepass"))
    with pytest.raises(ModelFileError, match=message) as caught:
        open_checkpoint([path])
    assert caught.value.path == str(tmp_path / "config.json")


def test_config_that_is_far_too_large(tmp_path: Path) -> None:
    path = write(tmp_path, SOUND)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate((64 << 20) + 1)  # sparse: no bytes are written
    with pytest.raises(ModelFileError, match="67108865 bytes long, more than the 67108864 allowed"):
        open_checkpoint([path])


def shard(folder: Path, name: str, tensor: str) -> Path:
    return write(folder, file_bytes({tensor: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)), name)


def index(folder: Path, weight_map: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_of_the_index(tmp_path: Path) -> None:
    shard(tmp_path, "one.safetensors", "a")
    shard(tmp_path, "two.safetensors", "b")
    shard(tmp_path, "stray.safetensors", "a")
    index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    checkpoint = open_checkpoint([tmp_path / "one.safetensors"])
    assert {name: info.file.name for name, info in checkpoint.tensors.items()} == {
        "a": "one.safetensors",
        "b": "two.safetensors",
    }


def test_shards_without_index(tmp_path: Path) -> None:
    paths = [shard(tmp_path, "one.safetensors", "a"), shard(tmp_path, "two.safetensors", "b")]
    assert list(open_checkpoint(paths).tensors) == ["a", "b"]


def test_missing_shards_are_named(tmp_path: Path) -> None:
    shard(tmp_path, "one.safetensors", "a")
    index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors", "c": "three.safetensors"})
    with pytest.raises(ModelFileError, match=r"missing shards: three.safetensors, two.safetensors. Fetch them"):
        open_checkpoint([tmp_path / "one.safetensors"])


def test_tensor_in_two_shards(tmp_path: Path) -> None:
    paths = [shard(tmp_path, "one.safetensors", "a"), shard(tmp_path, "two.safetensors", "a")]
    with pytest.raises(ModelFileError, match="tensor 'a' is also in"):
        open_checkpoint(paths)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "one.safetensors", "b": "one.safetensors"}, "says that tensor 'b' is in one.safetensors, which is not"),
        ({"a": "../one.safetensors"}, "no plain file name beside the index"),
        ({"a": "/etc/passwd"}, "no plain file name beside the index"),
        ({"a": "one\0.safetensors"}, "no plain file name beside the index"),
        ({"a": 1}, "weight_map is no object of tensor names to file names"),
        ({}, "weight_map is no object"),
        (None, "weight_map is no object"),
    ],
)
def test_index_faults(tmp_path: Path, weight_map: object, message: str) -> None:
    path = shard(tmp_path, "one.safetensors", "a")
    index(tmp_path, weight_map)
    with pytest.raises(ModelFileError, match=message):
        open_checkpoint([path])


def test_integers_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    table, flags, weight = np.array([3, -1]), np.array([True, False]), np.array([1.5], np.float32)
    header = {
        "t": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]},
        "f": {"dtype": "BOOL", "shape": [2], "data_offsets": [16, 18]},
        "w": {"dtype": "F32", "shape": [1], "data_offsets": [18, 22]},
    }
    path = write(tmp_path, file_bytes(header, table.tobytes() + flags.tobytes() + weight.tobytes()))
    checkpoint = open_with_integers([path], {"t", "f", "absent"})
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.integers("t").tolist() == [3, -1]
    assert checkpoint.integers("f").tolist() == [1, 0]
    with pytest.raises(UnsupportedModelError, match="'t' is stored as I64"):
        open_with_integers([path], {"f"})
    assert list(open_with_integers([path], {"t"}).code_tensors) == ["f"]  # a mask, for readers of weights to refuse
    short = {**header, "t": {"dtype": "I64", "shape": [3], "data_offsets": [0, 16]}}
    path = write(tmp_path, file_bytes(short, bytes(22)))
    with pytest.raises(ModelFileError, match=r"shape \[3\] in I64 is 24 bytes"):
        open_with_integers([path], {"t", "f"})
