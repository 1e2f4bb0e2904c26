"""From a checkpoint to weights: both formats, number formats, and what is wrong with a file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.execution.loader import Checkpoint, TensorInfo, open_checkpoint
from octavo.execution.loader.checkpoint import IntegerTensor
from octavo.execution.loader.gguf import encoded_metadata
from octavo.execution.loader.gguf_writer import GGUFTensor, write_gguf
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import NATIVE_TYPES, TensorType
from octavo.execution.weights import LoadedWeight, checkpoint_header, load_model, weight_bytes

FAMILIES = ("llama", "qwen2", "gemma3", "mixtral", "qwen2_moe", "qwen3_moe")
OTHERS = ("granite", "phi3", "olmo2", "gemma2", "gpt2")


def open_tiny(folder: Path, file_format: str = "gguf", **choices: Any) -> Checkpoint:
    path = write_tiny_model(folder / f"{file_format}.gguf", TinyModel(**choices), format=file_format)
    return open_checkpoint([path] if path.is_file() else sorted(path.glob("*.safetensors")))


@dataclass
class Edited:
    """A checkpoint with tensors left out, added or of other shapes, and metadata changed."""

    base: Checkpoint
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, Any]

    @property
    def format(self) -> str:
        return self.base.format

    @property
    def code_tensors(self) -> Mapping[str, IntegerTensor]:
        return self.base.code_tensors

    def raw(self, name: str) -> np.ndarray:
        return self.base.raw(name)

    def codes(self, name: str) -> np.ndarray:
        return self.base.codes(name)

    def give_back(self, name: str) -> None:
        self.base.give_back(name)

    def float32(self, name: str) -> np.ndarray:
        return self.base.float32(name)


def edited(
    base: Checkpoint, *, without: str = "", extra: Mapping[str, TensorInfo] | None = None, **metadata: object
) -> Edited:
    kept = {name: info for name, info in base.tensors.items() if name != without}
    return Edited(base, {**kept, **(extra or {})}, {**base.metadata, **metadata})


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_both_formats_give_equal_values(family: str, tmp_path: Path) -> None:
    own = {"gpt2": {"kv_heads": 4}, "phi3": {"rotary_dim": 8}}.get(family, {})
    in_gguf = load_model(open_tiny(tmp_path, "gguf", architecture=family, **own))[1]
    in_safetensors = load_model(open_tiny(tmp_path, "safetensors", architecture=family, **own))[1]
    assert in_gguf.keys() == in_safetensors.keys()
    for name, weight in in_gguf.items():
        # Norms of gemma's models are stored less one in safetensors, so the sum rounds.
        exact = not family.startswith("gemma") or len(weight.shape) == 2
        np.testing.assert_allclose(weight.float32(), in_safetensors[name].float32(), rtol=0 if exact else 1e-6)


def test_experts_of_gguf_files_may_have_gate_and_up_in_one_tensor(tmp_path: Path) -> None:
    apart = open_tiny(tmp_path, architecture="qwen3_moe", tensor_type=TensorType.Q8_0)
    path = tmp_path / "fused.gguf"
    write_gguf(path, encoded_metadata(tmp_path / "gguf.gguf"), list(with_fused_experts(apart)))
    fused = open_checkpoint([path])
    assert "blk.1.ffn_gate_up_exps.weight" in fused.tensors
    (program, weights), (expected_program, expected) = load_model(fused), load_model(apart)
    assert program == expected_program
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight.float32(), expected[name].float32(), err_msg=name)


def with_fused_experts(checkpoint: Checkpoint) -> Iterator[GGUFTensor]:
    """Its tensors, with each expert's rows of gate above those of up."""
    for name, info in checkpoint.tensors.items():
        if name.endswith("ffn_gate_exps.weight"):
            experts, inner, hidden = info.shape
            parts = [checkpoint.raw(part).reshape(experts, -1) for part in (name, name.replace("gate", "up"))]
            shape = (experts, 2 * inner, hidden)
            yield GGUFTensor(name.replace("gate", "gate_up"), info.type, shape, [np.hstack(parts)])
        elif not name.endswith("ffn_up_exps.weight"):
            yield GGUFTensor(name, info.type, info.shape, [checkpoint.raw(name)])


def test_a_weight_describes_its_bytes(tmp_path: Path) -> None:
    program, weights = load_model(open_tiny(tmp_path, tensor_type=TensorType.Q4_0, embedding_type=TensorType.Q8_0))
    assert weights.keys() == program.weights.keys()
    for name, weight in weights.items():
        assert weight.shape == program.weights[name].shape
        assert weight.raw.dtype == np.uint8
        assert weight.raw.size == weight.type.num_bytes(weight.shape) == weight_bytes(weights)[name]
    assert weights["layers.0.mlp.up"].type is TensorType.Q4_0
    assert weights["embed"].type is TensorType.Q8_0
    assert weights["layers.0.attn.norm"].type is TensorType.F32


def test_only_q_and_k_of_gguf_llama_have_a_row_order(tmp_path: Path) -> None:
    weights = load_model(open_tiny(tmp_path))[1]
    ordered = {name for name, weight in weights.items() if weight.row_order is not None}
    assert ordered == {f"layers.{i}.attn.{part}" for i in (0, 1) for part in ("q", "k")}
    q = weights["layers.0.attn.q"]
    assert q.row_order.dtype == np.int32
    assert (q.float32() == replace(q, row_order=None).float32()[q.row_order]).all()


def test_formats_without_a_kernel_are_converted(tmp_path: Path) -> None:
    """IQ3_S has no writer here; its blocks are as long as those of Q3_K, and any bytes are numbers in it, or NaN."""
    base = open_tiny(tmp_path, tensor_type=TensorType.Q3_K, hidden=256, intermediate=256)
    name = "blk.0.ffn_up.weight"
    changed = edited(base, extra={name: replace(base.tensors[name], type=TensorType.IQ3_S)})
    with np.errstate(invalid="ignore"):
        weight = load_model(changed)[1]["layers.0.mlp.up"]
        as_stored = LoadedWeight.of(TensorType.IQ3_S, weight.shape, base.raw(name))
        np.testing.assert_array_equal(weight.float32(), as_stored.float32())
    assert weight.type in NATIVE_TYPES


def test_rope_factors_are_read_from_their_tensor(tmp_path: Path) -> None:
    base = open_tiny(tmp_path)
    norm = base.tensors["output_norm.weight"]
    factors = replace(norm, name="rope_freqs.weight", shape=(8,))

    class WithFactors(Edited):
        def float32(self, name: str) -> np.ndarray:
            return np.arange(1, 9, dtype=np.float32) if name == "rope_freqs.weight" else super().float32(name)

    checkpoint = WithFactors(base, {**base.tensors, "rope_freqs.weight": factors}, base.metadata)
    plain, scaled = load_model(base)[0].ropes[0], load_model(checkpoint)[0].ropes[0]
    assert scaled.inv_freq == pytest.approx([f / n for n, f in enumerate(plain.inv_freq, 1)], rel=1e-6)


def test_the_header_holds_plain_data_and_no_tokenizer(tmp_path: Path) -> None:
    base = edited(open_tiny(tmp_path), **{"llama.feed_forward_length": np.array([128, 128], np.int32)})
    header = checkpoint_header(base)
    assert header.metadata["llama.feed_forward_length"] == (128, 128)
    assert all(type(n) is int for n in header.metadata["llama.feed_forward_length"])
    assert not [key for key in header.metadata if key.startswith("tokenizer.")]
    assert header.path.endswith("gguf.gguf")
    assert load_model(base)[0] == load_model(open_tiny(tmp_path))[0]


@pytest.mark.parametrize(
    ("file_format", "tensor"),
    [("gguf", "blk.1.ffn_down.weight"), ("safetensors", "model.layers.1.mlp.down_proj.weight")],
)
def test_a_missing_tensor_is_named(tmp_path: Path, file_format: str, tensor: str) -> None:
    with pytest.raises(ModelFileError, match=tensor):
        load_model(edited(open_tiny(tmp_path, file_format), without=tensor))


def test_a_wrong_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    base = open_tiny(tmp_path)
    name = "blk.0.attn_k.weight"
    wrong = edited(base, extra={name: replace(base.tensors[name], shape=(64, 64))})
    with pytest.raises(ModelFileError, match=rf"{name} is \[64, 64\], not \[32, 64\]"):
        load_model(wrong)


def test_metadata_that_contradicts_the_tensors_is_named(tmp_path: Path) -> None:
    wrong = edited(open_tiny(tmp_path), **{"llama.feed_forward_length": 96})
    with pytest.raises(
        ModelFileError, match=r"blk\.0\.ffn_gate\.weight is \[128, 64\], not \[96, 64\].* and \d+ more|ffn"
    ):
        load_model(wrong)


def test_a_tensor_without_a_use_is_refused(tmp_path: Path) -> None:
    base = open_tiny(tmp_path)
    bias = replace(base.tensors["blk.0.attn_norm.weight"], name="blk.0.attn_norm.bias")
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_norm\.bias"):
        load_model(edited(base, extra={"blk.0.attn_norm.bias": bias}))


def test_tensors_that_repeat_the_settings_are_let_be(tmp_path: Path) -> None:
    base = open_tiny(tmp_path, "safetensors")
    norm = base.tensors["model.norm.weight"]
    names = ("model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight")
    extra = {name: replace(norm, name=name) for name in names}
    assert load_model(edited(base, extra=extra))[0] == load_model(base)[0]


def test_an_untied_model_needs_its_output_matrix(tmp_path: Path) -> None:
    base = open_tiny(tmp_path, "safetensors", tied=False)
    assert "output" in load_model(base)[1]
    with pytest.raises(ModelFileError, match=r"lm_head\.weight"):
        load_model(edited(base, without="lm_head.weight"))


@pytest.mark.parametrize("dtype", ["BOOL", "U8", "F32"])
def test_causal_masks_of_old_gpt2_files_are_let_be(tmp_path: Path, dtype: str) -> None:
    """They stand among the weights, in the dtype of the day."""
    folder = write_tiny_model(tmp_path / "old", TinyModel(architecture="gpt2", kv_heads=4), format="safetensors")
    plain = load_model(open_checkpoint([folder / "model.safetensors"]))
    add_tensor(folder / "model.safetensors", "transformer.h.0.attn.bias", dtype, (1, 1, 4, 4))
    assert load_model(open_checkpoint([folder / "model.safetensors"]))[0] == plain[0]


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "old", TinyModel(architecture="gpt2", kv_heads=4), format="safetensors")
    path = folder / "model.safetensors"
    add_tensor(path, "transformer.h.0.attn.table", "U8", (4, 4))
    with pytest.raises(UnsupportedModelError, match=r"would leave out of .*transformer\.h\.0\.attn\.table"):
        load_model(open_checkpoint([path]))


@pytest.mark.parametrize("name", ["mlp.c_fc.weight", "ln_1.bias"])
def test_a_weight_of_whole_numbers_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_tiny_model(tmp_path / "odd", TinyModel(architecture="gpt2", kv_heads=4), format="safetensors")
    path = folder / "model.safetensors"
    tensor = f"transformer.h.1.{name}"
    shape = open_checkpoint([path]).tensors[tensor].shape
    header, data = split_file(path)
    del header[tensor]
    write_file(path, header, data)
    add_tensor(path, tensor, "U8", shape)
    with pytest.raises(UnsupportedModelError, match=rf"'{tensor}' is stored as U8, and config\.json does not say"):
        load_model(open_checkpoint([path]))


def split_file(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and tensor data of a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_file(path: Path, header: dict[str, Any], data: bytes) -> None:
    """With the tensors of the header one after the other."""
    kept, placed = b"", {}
    for name, entry in header.items():
        if name != "__metadata__":
            piece = data[slice(*entry["data_offsets"])]
            placed[name] = {**entry, "data_offsets": [len(kept), len(kept) + len(piece)]}
            kept += piece
    text = json.dumps(placed).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + kept)


def add_tensor(path: Path, name: str, dtype: str, shape: tuple[int, ...]) -> None:
    """Zeros, behind all others."""
    header, data = split_file(path)
    size = int(np.prod(shape)) * (4 if dtype == "F32" else 1)
    entry = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + size]}
    write_file(path, {**header, name: entry}, data + bytes(size))
