"""Which method reads a checkpoint, and what it leaves alone."""

import logging
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import UnsupportedModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import write_tiny_model
from octavo.execution.quant import TensorType as Q
from octavo.execution.quant_methods import packed_weights, registry
from octavo.execution.quant_methods.encode import encode
from octavo.execution.quant_methods.gptq import Gptq
from octavo.execution.quant_methods.settings import ModuleNames
from octavo.execution.weight_parts import matrix_part
from octavo.execution.weights import load_model
from octavo.model.fields import Fields
from octavo.model.sources import Columns, Rows, Transposed
from tests.execution.quant_methods.checkpoints import FILE, TINY, configure, quantise, read, rewrite, stored, write
from tests.execution.quant_methods.kinds import KINDS, KV_SCHEME
from tests.execution.quant_methods.packers import Tensor, floats


class Renamed(Gptq):
    """A method of somebody else."""

    names = ("their-gptq",)


RENAMED = Renamed()


def test_a_plug_in_is_asked_for_names_that_are_not_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="theirs", value=f"{__name__}:RENAMED", group=registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == point.group else [])
    write(tmp_path, KINDS["gptq"][0])
    configure(tmp_path, quantization_config={**KINDS["gptq"][0].config, "quant_method": "their-gptq"})
    assert len(packed_weights(open_checkpoint([tmp_path / FILE])).weights) == 14
    configure(tmp_path, quantization_config={**KINDS["gptq"][0].config, "quant_method": "nobodys"})
    with pytest.raises(UnsupportedModelError, match=r"it reads awq, compressed-tensors, .*, their-gptq"):
        packed_weights(open_checkpoint([tmp_path / FILE]))


@pytest.mark.parametrize("kind", ["awq", "gptq", "W4A16", "fp8 per block"])
def test_modules_that_are_not_quantised_are_read_as_they_are(kind: str, tmp_path: Path) -> None:
    values = write(tmp_path, KINDS[kind][0], wanted=lambda name: "mlp" in name)
    loaded = load_model(open_checkpoint([tmp_path / FILE]))[1]
    assert {name for name, weight in loaded.items() if weight.type is Q.F32} >= {"layers.0.attn.q", "embed"}
    for ours, theirs in {"attn.q": "self_attn.q_proj", "mlp.up": "mlp.up_proj"}.items():
        weight = loaded[f"layers.1.{ours}"]
        np.testing.assert_array_equal(weight.float32(), values[f"model.layers.1.{theirs}.weight"])


def test_a_table_may_be_quantised_unless_its_inputs_are_reordered(tmp_path: Path) -> None:
    for kind in ("gptq", "gptq, act-order"):
        write(tmp_path, KINDS[kind][0])
        tensors = stored(tmp_path)
        table = tensors.pop("model.embed_tokens.weight").data.astype(np.float64)
        packed = KINDS[kind][0].packer(table)
        rewrite(tmp_path, tensors | {f"model.embed_tokens.{part}": tensor for part, tensor in packed.tensors.items()})
        checkpoint = open_checkpoint([tmp_path / FILE])
        if kind == "gptq":
            np.testing.assert_array_equal(load_model(checkpoint)[1]["embed"].float32(), packed.values)
        else:
            with pytest.raises(
                UnsupportedModelError, match="table embed is quantised with its inputs in another order"
            ):
                load_model(checkpoint)


def test_biases_of_zeros_that_gptq_tools_write_add_nothing(tmp_path: Path) -> None:
    """Others do: they are no tensors to leave out."""
    write(tmp_path, KINDS["gptq"][0])
    tensors = stored(tmp_path)
    names = [name.removesuffix(".scales") + ".bias" for name in tensors if name.endswith(".scales")]
    biases = {name: floats(np.zeros(tensors[name[:-4] + "scales"].data.shape[1]), "F16") for name in names}
    rewrite(tmp_path, tensors | biases)
    program, _ = load_model(open_checkpoint([tmp_path / FILE]))
    assert not [name for name in program.weights if name.endswith(".bias")]
    biases[names[0]].data[-1] = 0.5
    rewrite(tmp_path, tensors | biases)
    with pytest.raises(UnsupportedModelError, match=f"would leave out .*: {names[0]}$"):
        load_model(open_checkpoint([tmp_path / FILE]))


def test_settings_of_published_checkpoints(tmp_path: Path) -> None:
    """Early ones call compressed weights frozen, those of floats int-quantized, and say how many zeros there are; later
    tools write the formats of others, and more about themselves."""
    dense = {"format": "dense", "global_sparsity": 0.13, "registry_requires_subclass": False}
    searched = {
        "data_type": "int",
        "autoround_version": "0.6.0",
        "provider": "auto-round",
        "iters": 200,
        "act_bits": 16,
    }
    for kind, changes in {
        "awq": {"method": "awq", "format": "gemm", "checkpoint_format": "gemm", "pack_dtype": "int32", **searched},
        "gptq": {"method": "gptq", "checkpoint_format": "gptq", "pack_dtype": "int32", **searched},
        "W8A8": {"quantization_status": "frozen", "sparsity_config": dense, "global_compression_ratio": 1.24},
        "float8 per tensor": {"quantization_status": "frozen", "format": "int-quantized", "kv_cache_scheme": None},
    }.items():
        values = write(tmp_path, KINDS[kind][0])
        configure(tmp_path, quantization_config={**KINDS[kind][0].config, **changes})
        weights = load_model(open_checkpoint([tmp_path / FILE]))[1]
        np.testing.assert_array_equal(weights["layers.0.mlp.up"].float32(), values["model.layers.0.mlp.up_proj.weight"])


def test_scales_of_k_and_v_are_told_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, KINDS["float8 per channel"][0])
    scales = {
        f"model.layers.{i}.self_attn.{part}_scale": floats(np.array([0.1]), "F32") for i in (0, 1) for part in "kv"
    }
    rewrite(tmp_path, stored(tmp_path) | scales)
    configure(tmp_path, quantization_config={**KINDS["float8 per channel"][0].config, "kv_cache_scheme": KV_SCHEME})
    with caplog.at_level(logging.WARNING, "octavo.quant_methods"):
        load_model(open_checkpoint([tmp_path / FILE]))
    (said,) = (record.getMessage() for record in caplog.records)
    assert "k_scale and 3 others" in said
    assert "own per token and head" in said


def test_parts_of_packed_tensors(tmp_path: Path) -> None:
    """q, k and v, or gate and up, in one tensor."""
    for kind, ordered in (("awq", True), ("gptq, act-order", False)):
        values = write(tmp_path, KINDS[kind][0])
        name = "model.layers.0.mlp.gate_proj.weight"
        whole = encode(name, packed_weights(open_checkpoint([tmp_path / FILE])).weights[name].read)
        rows = TINY.intermediate
        part = matrix_part(whole, Rows(40, 72, rows), (32, TINY.hidden))
        assert (part.raw.reshape(32, -1) == whole.raw.reshape(rows, -1)[40:72]).all()
        assert (part.input_order is None) is ordered
        assert part.raw.size == whole.type.num_bytes((32, TINY.hidden))
        with pytest.raises(UnsupportedModelError, match="which way it lies cannot be told"):
            matrix_part(whole, Transposed(), (TINY.hidden, rows))
        columns = Columns(32, 96, TINY.hidden)
        if ordered:
            narrow = matrix_part(whole, columns, (rows, 64))
            assert narrow.raw.size == whole.type.num_bytes((rows, 64))
        else:
            with pytest.raises(UnsupportedModelError, match="a part of them cannot be taken"):
                matrix_part(whole, columns, (rows, 64))
        assert values[name].shape == (rows, TINY.hidden)


def test_names_of_modules() -> None:
    names = ModuleNames(Fields("config", {"ignore": ["lm_head", r"re:.*\.(gate|up)_proj$"]}), "ignore")
    found = {name for name in ("lm_head", "lm_head2", "a.gate_proj", "a.up_proj.b", "a.down_proj") if name in names}
    assert found == {"lm_head", "a.gate_proj"}


def test_an_unquantised_checkpoint_has_no_packed_weights(tmp_path: Path) -> None:
    write(tmp_path, KINDS["awq"][0], wanted=lambda name: False)
    configure(tmp_path, quantization_config=None)
    assert not packed_weights(open_checkpoint([tmp_path / FILE])).weights


def test_groups_of_modules_with_settings_of_their_own(tmp_path: Path) -> None:
    """A group that names a module goes before the one for all linears, wherever it stands."""
    narrow, wide = KINDS["W4A16"][0], KINDS["W8A16"][0]
    values = write(tmp_path, narrow)
    four = stored(tmp_path)
    values_of_eight = write(tmp_path, wide)
    rewrite(
        tmp_path,
        {name: tensor for name, tensor in four.items() if "down_proj" not in name}
        | {name: tensor for name, tensor in stored(tmp_path).items() if "down_proj" in name},
    )
    groups = {
        "group_0": narrow.config["config_groups"]["group_0"],
        "group_1": {**wide.config["config_groups"]["group_0"], "targets": [r"re:.*\.down_proj$"]},
    }
    configure(tmp_path, quantization_config={**narrow.config, "config_groups": groups})
    loaded = load_model(open_checkpoint([tmp_path / FILE]))[1]
    down, up = loaded["layers.1.mlp.down"], loaded["layers.1.mlp.up"]
    assert (down.type, up.type) == (Q.Q8_0, Q.Q4_0)
    np.testing.assert_array_equal(down.float32(), values_of_eight["model.layers.1.mlp.down_proj.weight"])
    np.testing.assert_array_equal(up.float32(), values["model.layers.1.mlp.up_proj.weight"])


@pytest.mark.parametrize("kind", ["awq", "gptq, act-order", "fp8 per block"])
def test_a_model_with_fused_linears(kind: str, tmp_path: Path) -> None:
    """phi-3 has q, k and v in one tensor, gate and up in another: each weight is a part of what is packed."""
    write_tiny_model(tmp_path, TINY, format="safetensors")
    plain = read(tmp_path)
    for layer in (f"model.layers.{i}." for i in range(TINY.layers)):
        for whole, parts in {"self_attn.qkv": ("q", "k", "v"), "mlp.gate_up": ("gate", "up")}.items():
            room = whole.split(".")[0]
            together = [plain.pop(f"{layer}{room}.{part}_proj.weight") for part in parts]
            plain[f"{layer}{whole}_proj.weight"] = np.concatenate(together)
    rewrite(tmp_path, {name: Tensor("F32", values) for name, values in plain.items()})
    configure(tmp_path, architectures=["Phi3ForCausalLM"], model_type="phi3")
    values = quantise(tmp_path, KINDS[kind][0])
    loaded = load_model(open_checkpoint([tmp_path / FILE]))[1]
    qkv, gate_up = (values[f"model.layers.1.{name}_proj.weight"] for name in ("self_attn.qkv", "mlp.gate_up"))
    q, k = TINY.q_width, TINY.q_width + TINY.kv_width
    parts = {"attn.q": qkv[:q], "attn.k": qkv[q:k], "attn.v": qkv[k:], "mlp.up": gate_up[TINY.intermediate :]}
    for name, expected in parts.items():
        np.testing.assert_array_equal(loaded[f"layers.1.{name}"].float32(), expected)
