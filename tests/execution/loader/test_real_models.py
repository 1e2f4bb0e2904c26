"""The known models, where they are in the cache."""

import time
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.execution.loader import open_checkpoint
from octavo.execution.quant import TensorType, dequantize
from tests.real_models import model_path

SUMMARY = {
    "smollm2-135m": ("llama", 272, 49152, {"F32", "Q4_1", "Q8_0"}),
    "gemma3-270m": ("gemma3", 236, 262144, {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"}),
    "qwen2.5-coder-0.5b": ("qwen2", 291, 151936, {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"}),
}


SLOW_TO_FETCH = [pytest.param(alias, marks=pytest.mark.slow) for alias in ("gemma3-270m", "qwen2.5-coder-0.5b")]
"""Their tests are quick, but the default suite asks for one model alone."""


@pytest.mark.parametrize("alias", ["smollm2-135m", *SLOW_TO_FETCH])
def test_opens_in_half_a_second(alias: str) -> None:
    architecture, num_tensors, num_tokens, types = SUMMARY[alias]
    path = model_path(alias)
    start = time.process_time()
    checkpoint = open_checkpoint([path])
    assert time.process_time() - start < 0.5
    assert checkpoint.metadata["general.architecture"] == architecture
    assert len(checkpoint.tensors) == num_tensors
    assert len(checkpoint.metadata["tokenizer.ggml.tokens"]) == num_tokens
    assert {info.type.name for info in checkpoint.tensors.values()} == types
    end = max(info.offset + info.nbytes for info in checkpoint.tensors.values())
    assert path.stat().st_size - 32 < end <= path.stat().st_size


def test_truncated_copy_of_a_real_file(tmp_path: Path) -> None:
    with model_path("smollm2-135m").open("rb") as file:
        start = file.read(3_000_000)
    for length in (0, 3, 4, 23, 24, 1000, 900_000, 1_785_663, 2_999_999):
        (tmp_path / "cut.gguf").write_bytes(start[:length])
        with pytest.raises(ModelFileError):
            open_checkpoint([tmp_path / "cut.gguf"])


@pytest.mark.slow
@pytest.mark.parametrize("alias", ["smollm2-135m"])
def test_same_tensors_as_the_public_package(alias: str) -> None:
    gguf = pytest.importorskip("gguf")
    path = model_path(alias)
    ours = open_checkpoint([path])
    for tensor in gguf.GGUFReader(path).tensors:
        info = ours.tensors[tensor.name]
        assert (info.type.name, info.shape) == (tensor.tensor_type.name, tuple(int(d) for d in reversed(tensor.shape)))
        assert info.offset == int(tensor.data_offset)
        np.testing.assert_array_equal(ours.raw(tensor.name), np.asarray(tensor.data).reshape(-1).view(np.uint8))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("smollm2-135m", "Q4_1"),
        ("smollm2-135m", "Q8_0"),
        pytest.param("gemma3-270m", "Q4_K", marks=pytest.mark.slow),
        pytest.param("gemma3-270m", "Q5_0", marks=pytest.mark.slow),
        pytest.param("gemma3-270m", "Q6_K", marks=pytest.mark.slow),
    ],
)
def test_real_tensors_decode_to_the_bits_of_the_public_package(alias: str, name: str) -> None:
    gguf = pytest.importorskip("gguf")
    checkpoint = open_checkpoint([model_path(alias)])
    info = next(info for info in checkpoint.tensors.values() if info.type is TensorType[name])
    raw = checkpoint.raw(info.name)
    theirs = gguf.quants.dequantize(raw.reshape(info.shape[0], -1), gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(dequantize(info.type, raw, info.shape).view(np.uint32), theirs.view(np.uint32))
