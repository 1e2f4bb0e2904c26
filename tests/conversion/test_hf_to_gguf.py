import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.conversion.tokenizer_probes import PROBES
from octavo.conversion.verify import program_difference
from octavo.engine.quantization import quantised_at_load
from octavo.errors import UnsupportedModelError
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType
from octavo.execution.weights import LoadedWeight, load_model
from octavo.text.template_source import template_from_gguf, template_from_hf
from octavo.text.tokenizer import from_gguf, from_hf
from tests.conversion.rig import WIDE, converted
from tests.execution.quant_methods.checkpoints import read, rewrite
from tests.execution.quant_methods.packers import Tensor, floats

WIDTHS = (256, 128, 128, 256)
"""Outputs of q, k, v and o."""
ARCHITECTURES = ["llama", "qwen2", "gemma3", "gpt2"]


def folder_of(path: Path, **fields: Any) -> Path:
    own = {"gpt2": {"kv_heads": WIDE["heads"]}, "phi3": {"rotary_dim": 16}}.get(fields.get("architecture", ""), {})
    model = TinyModel(**{"tensor_type": TensorType.BF16, **WIDE, **own, **fields})
    return write_tiny_model(path, model, format="safetensors")


def opened(folder: Path) -> Checkpoint:
    return open_checkpoint(sorted(folder.glob("*.safetensors")))


def rows_in_order(weight: LoadedWeight) -> np.ndarray:
    """Bytes of each output row."""
    rows = weight.raw.reshape(weight.shape[0], -1)
    return rows if weight.row_order is None else rows[weight.row_order]


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "granite", "phi3", "olmo2", "gemma2"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_file_is_the_same_model(architecture: str, tied: bool, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", architecture=architecture, tied=tied, layers=3)
    converted(folder, "F32", tmp_path / "out.gguf", threads=2)
    file = open_checkpoint([tmp_path / "out.gguf"])
    (ours, written), (theirs, stored) = load_model(file), load_model(opened(folder))
    assert program_difference(theirs, ours) is None
    for name, weight in stored.items():
        np.testing.assert_array_equal(written[name].float32(), weight.float32(), err_msg=name)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tokenizer_and_the_template_come_along(architecture: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", architecture=architecture)
    converted(folder, "Q8_0", tmp_path / "out.gguf")
    metadata = open_checkpoint([tmp_path / "out.gguf"]).metadata
    ours, theirs = from_gguf(metadata), from_hf(folder)
    for text in PROBES:
        assert ours.encode(text) == theirs.encode(text)
    assert (ours.bos_id, ours.eos_ids[0]) == (theirs.bos_id, theirs.eos_ids[0])
    assert set(ours.eos_ids) >= set(theirs.eos_ids)  # readers of GGUF files add tokens that are spelled like an end
    assert ours.control_tokens().items() >= theirs.control_tokens().items()
    assert template_from_gguf(metadata) == template_from_hf(folder)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["q4_k", "q5_0"])
def test_quantised_at_load_is_the_same_to_the_bit(architecture: str, name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", architecture=architecture)
    converted(folder, name.upper(), tmp_path / "out.gguf")
    _, from_file = load_model(open_checkpoint([tmp_path / "out.gguf"]))
    program, stored = load_model(opened(folder))
    at_load = quantised_at_load(name, program, stored, threads=1)
    for weight, expected in from_file.items():
        assert at_load[weight].type is expected.type, weight
        np.testing.assert_array_equal(rows_in_order(at_load[weight]), rows_in_order(expected), err_msg=weight)


def test_biases_come_along(tmp_path: Path) -> None:
    """Those of q and k in the order of the rows."""
    folder = folder_of(tmp_path / "hf", tensor_type=TensorType.F32)
    tensors = {name: Tensor("F32", values) for name, values in read(folder).items()}
    widths = {f"model.layers.0.self_attn.{part}_proj": width for part, width in zip("qkvo", WIDTHS, strict=True)}
    noise = np.random.default_rng(0)
    tensors |= {f"{name}.bias": floats(noise.normal(size=width), "F32") for name, width in widths.items()}
    rewrite(folder, tensors)
    with_config(folder, "config.json", attention_bias=True)
    converted(folder, "F16", tmp_path / "out.gguf")
    (ours, written), (theirs, stored) = load_model(open_checkpoint([tmp_path / "out.gguf"])), load_model(opened(folder))
    assert program_difference(theirs, ours) is None
    for part in ("q", "out"):
        np.testing.assert_array_equal(
            written[f"layers.0.attn.{part}.bias"].float32(), stored[f"layers.0.attn.{part}.bias"].float32()
        )


@pytest.mark.parametrize("architecture", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_experts_become_one_tensor_and_are_quantised_at_load_as_there(architecture: str, tmp_path: Path) -> None:
    dense = {} if architecture == "mixtral" else {"dense_layers": (1,)}
    folder = folder_of(tmp_path / "hf", architecture=architecture, layers=2, experts=3, **dense)
    converted(folder, "Q2_K", tmp_path / "out.gguf")
    file = open_checkpoint([tmp_path / "out.gguf"])
    assert file.tensors["blk.0.ffn_down_exps.weight"].shape == (3, 256, 512)
    assert ("blk.1.ffn_gate_inp.weight" in file.tensors) is (not dense)
    if architecture == "qwen2_moe":
        assert file.tensors["blk.0.ffn_gate_inp_shexp.weight"].shape == (256,)
    (ours, from_file), (theirs, stored) = load_model(file), load_model(opened(folder))
    assert program_difference(theirs, ours) is None
    at_load = quantised_at_load("q2_k", theirs, stored, threads=1)
    for weight, expected in from_file.items():
        assert at_load[weight].type is expected.type, weight
        np.testing.assert_array_equal(rows_in_order(at_load[weight]), rows_in_order(expected), err_msg=weight)
    types = {part: at_load[f"layers.0.mlp.{part}"].type.name for part in ("router", "experts.2.up", "experts.2.down")}
    assert types == {"router": "BF16", "experts.2.up": "Q2_K", "experts.2.down": "Q3_K"}


def test_the_public_package_reads_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    converted(folder_of(tmp_path / "hf"), "Q4_0", tmp_path / "out.gguf")
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    assert bytes(reader.get_field("general.architecture").parts[-1]) == b"llama"
    assert len(reader.get_field("tokenizer.ggml.tokens").data) == 512


def with_config(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_other_ends_are_told_with_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = folder_of(tmp_path / "hf")
    converted(folder, "Q8_0", tmp_path / "more.gguf")
    assert "answers of the new file also end at '<|endoftext|>' (0), which readers" in caplog.text
    assert "add [0] to eos_token_id in its generation_config.json" in caplog.text
    caplog.clear()
    with_config(folder, "generation_config.json", eos_token_id=[2, 0])
    converted(folder, "Q8_0", tmp_path / "same.gguf")
    assert "answers" not in caplog.text
    with_config(folder, "generation_config.json", eos_token_id=[2, 0, 1, 36])
    converted(folder, "Q8_0", tmp_path / "fewer.gguf")
    assert "answers of the folder end at 'B' (36), those of the new file go on" in caplog.text
    assert "ask for stop_token_ids=[36]" in caplog.text


def test_llama3_scaling_becomes_divisors(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf")
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    with_config(folder, "config.json", rope_scaling={**scaling, "original_max_position_embeddings": 256})
    converted(folder, "Q8_0", tmp_path / "out.gguf")
    file = open_checkpoint([tmp_path / "out.gguf"])
    assert "rope_freqs.weight" in file.tensors
    assert load_model(file)[0].ropes == load_model(opened(folder))[0].ropes


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_scalings_become_keys(kind: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", tensor_type=TensorType.F32)
    scaling = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 512}
    with_config(folder, "config.json", rope_scaling=scaling)
    converted(folder, "F32", tmp_path / "out.gguf")
    file = open_checkpoint([tmp_path / "out.gguf"])
    assert (file.metadata["llama.rope.scaling.type"], file.metadata["llama.rope.scaling.factor"]) == (kind, 4.0)
    assert load_model(file)[0].ropes == load_model(opened(folder))[0].ropes


def test_what_gguf_cannot_say_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "no_tokenizer")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"has no tokenizer.json, .*--format safetensors"):
        converted(folder, "Q8_0", tmp_path / "out.gguf")
    windows = folder_of(tmp_path / "windows")
    with_config(windows, "config.json", architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=32)
    with pytest.raises(UnsupportedModelError, match=r"would make another model of it \(.*sliding_window=32 asks"):
        converted(windows, "Q8_0", tmp_path / "out.gguf")
    scaled = folder_of(tmp_path / "scaled", architecture="gemma3")
    with_config(scaled, "config.json", query_pre_attn_scalar=100)
    with pytest.raises(UnsupportedModelError, match=r"would make another model of it \(ops.*scale is 0.1 and 0.125\)"):
        converted(scaled, "Q8_0", tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_a_rule_that_has_no_name_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf")
    document = json.loads((folder / "tokenizer.json").read_text())
    document["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Punctuation", "behavior": "Removed"})
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(UnsupportedModelError, match="cuts text by a rule for which GGUF has no name"):
        converted(folder, "Q8_0", tmp_path / "out.gguf")


def test_a_rule_of_experts_weights_that_is_not_the_architectures_own_becomes_a_key(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", architecture="qwen2_moe")
    with_config(folder, "config.json", norm_topk_prob=True)
    converted(folder, "Q8_0", tmp_path / "out.gguf")
    file = open_checkpoint([tmp_path / "out.gguf"])
    assert file.metadata["qwen2moe.expert_weights_norm"] is True
    assert program_difference(load_model(opened(folder))[0], load_model(file)[0]) is None
