"""Shapes against what is published and what programs hold."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.ledger_model import model_named
from octavo.errors import ConfigError, ModelFileError
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.execution.quant import TensorType
from octavo.kv.spec import AttentionSpec, LatentSpec
from octavo.model.cost import kv_values_per_token
from octavo.model.cost import num_parameters as num_program_parameters
from octavo.model.fields import Fields
from octavo.model.program import Split
from octavo.model.registry import define_model
from octavo.planning.from_config import shape_of_config
from octavo.planning.from_program import shape_of_program
from octavo.planning.kv import FORMATS, kv_bytes, kv_bytes_per_token, kv_bytes_per_token_per_device
from octavo.planning.models import shipped_model, shipped_models
from octavo.planning.parameters import (
    num_active_parameters,
    num_parameters,
    num_parameters_per_device,
    stage_bounds,
)
from octavo.planning.shape import Pricing
from octavo.planning.weights import format_of_config
from tests.model.test_gpt2 import in_hf
from tests.real_models import model_path

PUBLISHED = {
    "deepseek-v3": 671_026_419_200,
    "gemma3-270m": 268_098_176,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-coder-0.5b": 630_167_424,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-8b": 8_190_735_360,
    "smollm2-135m": 134_515_008,
}
"""What the model cards and files say; of the one with two tables of its own in this file, both are counted."""
OURS = ("smollm2-135m", "qwen2.5-coder-0.5b", "gemma3-270m")
BF16 = FORMATS["bf16"]


@pytest.mark.parametrize("name", shipped_models())
def test_parameters_are_those_that_are_published(name: str) -> None:
    assert num_parameters(shipped_model(name).shape) == PUBLISHED[name]


@pytest.mark.parametrize("name", shipped_models())
def test_programs_are_counted_as_programs_count_themselves(name: str) -> None:
    shape = shipped_model(name).shape
    if shape.program is None:
        assert shape.priced_by is Pricing.FORMULA
        assert shape.notes
        return
    assert num_parameters(shape) == num_program_parameters(shape.program)
    assert kv_bytes_per_token(shape, BF16) == 2 * kv_values_per_token(shape.program)


def test_experts_that_a_token_passes_by_are_not_active() -> None:
    active = {name: num_active_parameters(shipped_model(name).shape) / 1e9 for name in shipped_models()}
    assert active["mixtral-8x7b"] == pytest.approx(12.88, abs=0.01)
    assert active["deepseek-v3"] == pytest.approx(37.55, abs=0.01)
    assert active["qwen3-30b-a3b"] == pytest.approx(3.35, abs=0.01)
    assert active["llama-3-8b"] * 1e9 == PUBLISHED["llama-3-8b"]


def test_the_first_layers_are_dense_where_the_config_says_so() -> None:
    layers = shipped_model("deepseek-v3").shape.layers
    routed = [any(matrix.num_experts == 256 for matrix in layer.matrices) for layer in layers]
    assert routed == [False] * 3 + [True] * 58
    assert {layer.cache for layer in layers} == {LatentSpec(latent_dim=512, rope_dim=64)}


def test_learned_positions_are_counted() -> None:
    program = define_model(in_hf()).program
    shape = shape_of_program(program, "tiny", "gpt2")
    assert num_parameters(shape) == num_program_parameters(program)
    assert num_parameters_per_device(shape, tp=1) == num_parameters(shape)
    assert shape.num_position_parameters == math.prod(program.weights["positions"].shape)


@pytest.mark.parametrize("name", OURS)
def test_shipped_configs_say_what_the_files_say(name: str) -> None:
    shipped, read = shipped_model(name), model_named(str(model_path(name)))
    assert num_parameters(shipped.shape) == num_parameters(read.shape)
    assert [layer.cache for layer in shipped.shape.layers] == [layer.cache for layer in read.shape.layers]
    assert shipped.shape.max_positions == read.shape.max_positions
    assert shipped.weights == read.weights
    assert read.shape.notes == ()


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_both_formats_of_a_model_give_one_shape(architecture: Any, tmp_path: Path) -> None:
    tiny = TinyModel(architecture=architecture, tensor_type=TensorType.BF16)
    gguf = model_named(str(write_tiny_model(tmp_path / "tiny.gguf", tiny)))
    folder = write_tiny_model(tmp_path / "tiny", tiny, format="safetensors")
    safetensors, config = model_named(str(folder)), model_named(str(folder / "config.json"))
    assert gguf.shape.layers == safetensors.shape.layers == config.shape.layers
    assert gguf.shape.priced_by is config.shape.priced_by is Pricing.PROGRAM
    assert num_parameters(gguf.shape) == num_parameters(config.shape)
    assert config.weights.name == "bf16"


def test_a_folder_with_nothing_but_a_config_is_enough(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny", format="safetensors")
    for file in folder.glob("*.safetensors"):
        file.unlink()
    assert model_named(str(folder)).shape.num_layers == 2


def config_of(name: str) -> dict[str, Any]:
    file = Path(__file__).parents[2] / "src" / "octavo" / "planning" / "models" / f"{name}.json"
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def test_formulas_agree_with_the_programs_that_we_have() -> None:
    """The same configs, under a name that no family knows."""
    for name in ("llama-3-8b", "llama-3.2-1b"):
        program = shipped_model(name).shape
        formula = shape_of_config(Fields("config.json", config_of(name)), name, "Unheard")
        assert formula.layers == program.layers
        assert num_parameters(formula) == num_parameters(program)
        assert "Unheard is not known" in formula.notes[-1]


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"sliding_window": 8}, [8, 8]),
        ({"sliding_window": 8, "use_sliding_window": False}, [None, None]),
        ({"sliding_window": None}, [None, None]),
        ({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}, [None, 8]),
    ],
)
def test_windows_of_configs(changes: dict[str, Any], windows: list[int | None]) -> None:
    config = config_of("mixtral-8x7b") | {"num_hidden_layers": 2} | changes
    shape = shape_of_config(Fields("config.json", config), "x", "MixtralForCausalLM")
    assert [layer.cache.window for layer in shape.layers if isinstance(layer.cache, AttentionSpec)] == windows


def test_windows_and_norms_that_an_architecture_s_name_implies() -> None:
    """Every second layer sees everything; four norms; one table: as published for the smallest of its kind."""
    sizes = {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "vocab_size": 256_000}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192}
    shape = shape_of_config(Fields("c", sizes | heads | {"sliding_window": 4096}), "x", "Gemma2ForCausalLM")
    assert num_parameters(shape) == 2_614_341_888
    assert [layer.cache.reach for layer in shape.layers] == [4096, None] * 13
    assert shape.notes == ()


def test_of_models_that_see_the_text_part_is_counted(tmp_path: Path) -> None:
    text = {key: value for key, value in config_of("qwen3-8b").items() if key != "architectures"}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"architectures": ["SeesForCausalLM"], "text_config": text, "vision_config": {}}))
    shape = model_named(str(file)).shape
    norms = 2 * 128 * 36
    assert num_parameters(shape) == PUBLISHED["qwen3-8b"] - norms
    assert "only its text part is counted" in shape.notes


def test_windows_bound_what_a_long_request_holds() -> None:
    shape = shipped_model("gemma3-270m").shape
    per_layer = kv_bytes_per_token(shape, BF16) / 18
    assert kv_bytes(shape, 512, BF16) == 512 * 18 * per_layer
    assert kv_bytes(shape, 2000, BF16) == (2000 * 3 + 512 * 15) * per_layer


def test_eight_bit_kv_has_scales() -> None:
    shape = shipped_model("llama-3-8b").shape
    assert kv_bytes_per_token(shape, FORMATS["fp8"]) == 32 * 2 * 8 * (128 + 4)


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (4, 2), (8, 1), (16, 1)])
def test_ranks_beyond_the_heads_hold_one_each(tp: int, heads: int) -> None:
    assert kv_bytes_per_token_per_device(shipped_model("llama-3-70b").shape, BF16, tp) == 80 * 2 * heads * 128 * 2


def test_latent_vectors_are_whole_on_every_rank_and_stages_share_layers() -> None:
    shape = shipped_model("deepseek-v3").shape
    whole = kv_bytes_per_token(shape, BF16)
    assert kv_bytes_per_token_per_device(shape, BF16, 8) == whole
    assert kv_bytes_per_token_per_device(shape, BF16, 8, pp=2) == pytest.approx(whole * 31 / 61)


@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "gemma3-270m", "deepseek-v3"])
def test_devices_hold_everything_once_and_what_is_replicated_on_each(name: str) -> None:
    shape = shipped_model(name).shape
    assert num_parameters_per_device(shape, tp=1) == num_parameters(shape)
    whole = sum(matrix.num_parameters for matrix in shape.matrices() if matrix.split is Split.REPLICATED)
    whole += sum(layer.num_norm_parameters for layer in shape.layers) + shape.num_final_norm_parameters
    assert num_parameters_per_device(shape, tp=4) == (num_parameters(shape) - whole) / 4 + whole


def test_stages_take_layers_in_turn_and_tables_at_the_ends() -> None:
    assert stage_bounds(10, 4) == [(0, 3), (3, 6), (6, 8), (8, 10)]
    shape = shipped_model("llama-3-70b").shape
    ends = shape.num_embedding_parameters + 40 * shape.layers[0].num_parameters + shape.hidden_size
    assert num_parameters_per_device(shape, tp=1, pp=2) == ends


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, "bf16"),
        ({"torch_dtype": "float16"}, "fp16"),
        ({"dtype": "float32"}, "fp32"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "int4"),
    ],
)
def test_weight_formats_of_configs(config: dict[str, Any], name: str) -> None:
    assert format_of_config(config).name == name


def test_unknown_quantisation_asks_for_its_bits() -> None:
    with pytest.raises(ConfigError, match=r"quantization_config.*say its bits: --weights"):
        format_of_config({"quantization_config": {"quant_method": "exl2"}})


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "num_experts_per_tok"])
def test_configs_that_lack_a_key_are_told_which(key: str, tmp_path: Path) -> None:
    config = config_of("mixtral-8x7b")
    del config[key]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    with pytest.raises(ModelFileError, match=key):
        model_named(str(file))
