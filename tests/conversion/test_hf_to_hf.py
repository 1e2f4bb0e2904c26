import json
from pathlib import Path

import numpy as np
import pytest

from octavo.engine.quantization import quantised_at_load
from octavo.errors import ConfigError, UnsupportedModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType
from octavo.execution.weights import load_model
from octavo.text.tokenizer import from_hf
from tests.conversion.rig import WIDE, converted
from tests.conversion.test_hf_to_gguf import folder_of, opened

Q = "layers.0.attn.q"


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("name", ["q8_0", "q4_0"])
def test_codes_and_scales_are_those_of_the_type(architecture: str, name: str, tmp_path: Path) -> None:
    """What compressed-tensors' reader makes of the folder is, byte for byte, what a load with the type would make."""
    folder = folder_of(tmp_path / "hf", architecture=architecture, tied=False)
    done = converted(folder, name.upper(), tmp_path / "out", file_format="safetensors", threads=2)
    assert done.types == {name.upper(): 7, "BF16": done.types["BF16"]}
    _, written = load_model(opened(tmp_path / "out"))
    program, stored = load_model(opened(folder))
    at_load = quantised_at_load(name, program, stored, threads=1)
    for weight, loaded in written.items():
        if ".attn." in weight or ".mlp." in weight:
            assert loaded.type is at_load[weight].type, weight
            np.testing.assert_array_equal(loaded.raw, at_load[weight].raw, err_msg=weight)
    assert (written["embed"].type, written["output"].type) == (TensorType.BF16, TensorType.BF16)
    assert from_hf(tmp_path / "out").encode("Hello world") == from_hf(folder).encode("Hello world")


@pytest.mark.parametrize(("name", "dtype"), [("F32", "float32"), ("F16", "float16")])
def test_float_types(name: str, dtype: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf")
    converted(folder, name, tmp_path / "out", file_format="safetensors")
    _, written = load_model(opened(tmp_path / "out"))
    _, stored = load_model(opened(folder))
    assert written[Q].type is TensorType[name]
    expected = stored[Q].float32() if name == "F32" else stored[Q].float32().astype(np.float16)
    np.testing.assert_array_equal(written[Q].float32(), expected)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == dtype
    assert "quantization_config" not in config


def test_rows_that_are_no_whole_groups_stay_floats_and_are_named(tmp_path: Path) -> None:
    model = TinyModel(hidden=64, heads=4, intermediate=80, layers=1, tensor_type=TensorType.BF16)
    folder = write_tiny_model(tmp_path / "hf", model, format="safetensors")
    converted(folder, "Q4_0", tmp_path / "out", file_format="safetensors")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["lm_head", "model.layers.0.mlp.down_proj"]
    _, written = load_model(opened(tmp_path / "out"))
    assert (written[Q].type, written["layers.0.mlp.down"].type) == (TensorType.Q4_0, TensorType.BF16)


def test_routers_stay_floats_and_are_named(tmp_path: Path) -> None:
    """Experts are linears like others."""
    folder = folder_of(tmp_path / "hf", architecture="qwen2_moe", experts=3)
    converted(folder, "Q8_0", tmp_path / "out", file_format="safetensors")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    mlp = "model.layers.0.mlp"
    assert sorted(config["quantization_config"]["ignore"]) == ["lm_head", f"{mlp}.gate", f"{mlp}.shared_expert_gate"]
    _, written = load_model(opened(tmp_path / "out"))
    kinds = {part: written[f"layers.0.mlp.{part}"].type for part in ("router", "experts.2.down", "shared.up")}
    assert kinds == {"router": TensorType.BF16, "experts.2.down": TensorType.Q8_0, "shared.up": TensorType.Q8_0}


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder, out = folder_of(tmp_path / "hf"), tmp_path / "out"
    converted(folder, "Q8_0", out, file_format="safetensors")
    (out / "stray").write_text("of the old one")
    with pytest.raises(ConfigError, match="is there already"):
        converted(folder, "Q4_0", out, file_format="safetensors")
    converted(folder, "Q4_0", out, file_format="safetensors", force=True)
    assert not (out / "stray").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "out"]


def test_what_a_folder_cannot_hold_is_refused(tmp_path: Path) -> None:
    folder, out = folder_of(tmp_path / "hf"), tmp_path / "out"
    with pytest.raises(ConfigError, match="to='q4_k': is a type that safetensors folders do not hold; they hold q8_0,"):
        converted(folder, "Q4_K", out, file_format="safetensors")
    with pytest.raises(ConfigError, match="output_type='q6_k': must be f32, f16 or bf16"):
        converted(folder, "Q4_0", out, file_format="safetensors", output_type="Q6_K")
    gguf = write_tiny_model(tmp_path / "tiny.gguf", TinyModel(**WIDE))
    with pytest.raises(ConfigError, match="format='safetensors': is not made of gguf files; start from the Hugging"):
        converted(gguf, "Q4_0", out, file_format="safetensors")
    converted(folder, "Q4_0", out, file_format="safetensors")
    with pytest.raises(UnsupportedModelError, match="quantization_config: is quantised already"):
        converted(out, "Q8_0", tmp_path / "twice", file_format="safetensors")


def test_a_quantised_folder_becomes_a_gguf_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf")
    converted(folder, "Q4_0", tmp_path / "out", file_format="safetensors")
    converted(tmp_path / "out", "Q4_0", tmp_path / "out.gguf")
    _, from_folder = load_model(opened(tmp_path / "out"))
    _, from_file = load_model(open_checkpoint([tmp_path / "out.gguf"]))
    assert from_file[Q].type is TensorType.Q4_0
    np.testing.assert_array_equal(from_file[Q].float32(), from_folder[Q].float32())


def test_only_models_are_replaced(tmp_path: Path) -> None:
    folder, home = folder_of(tmp_path / "home" / "hf"), tmp_path / "home"
    with pytest.raises(ConfigError, match="holds other things than a model, which --force would remove"):
        converted(folder, "Q8_0", home, file_format="safetensors", force=True)
    with pytest.raises(ConfigError, match="is a folder; name a file in it, or write --format safetensors"):
        converted(folder, "Q8_0", home, force=True)
    with pytest.raises(ConfigError, match="is a file; name a folder, or write --format gguf"):
        converted(folder, "Q8_0", folder / "config.json", file_format="safetensors", force=True)
    assert opened(folder).tensors
    (tmp_path / "empty").mkdir()
    converted(folder, "Q8_0", tmp_path / "empty", file_format="safetensors", force=True)
    assert opened(tmp_path / "empty").tensors
