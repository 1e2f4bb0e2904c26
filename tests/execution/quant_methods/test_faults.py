"""Checkpoints that cannot be computed, or do not fit together: errors name the field or the tensor, and what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import ModelError, ModelFileError, UnsupportedModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.weights import load_model
from tests.execution.quant_methods.checkpoints import FILE, configure, rewrite, stored, write
from tests.execution.quant_methods.kinds import KINDS, ct_config, float_weights, int_weights
from tests.execution.quant_methods.packers import Tensor, floats, integers

Q = "model.layers.1.self_attn.q_proj"
Tensors = dict[str, Tensor]
Change = Callable[[Tensors], object]


def load(folder: Path) -> None:
    load_model(open_checkpoint([folder / FILE]))


CONFIGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no method": ("awq", {"quant_method": None}, "lacks quant_method.*it reads awq"),
    "auto-round": ("gptq", {"quant_method": "auto-round"}, "auto-round.*format auto_gptq or auto_awq"),
    "unknown method": (
        "awq",
        {"quant_method": "quip"},
        r"quant_method='quip' is not one that Octavo reads; it reads awq",
    ),
    "bitsandbytes": ("awq", {"quant_method": "bitsandbytes"}, "bitsandbytes.* indices into a table"),
    "awq bits": ("awq", {"bits": 8}, "bits=8 is not supported; supported: 4"),
    "awq layout": ("awq", {"version": "gemv_fast"}, "version='gemv_fast' is not supported; supported: gemm"),
    "awq group size": ("awq", {"group_size": 0}, "group_size=0 is no number of inputs"),
    "other group size": ("awq", {"group_size": 64}, r"q_proj.qzeros \(I32 \[4, 16\]\) is not \[2, 16\]"),
    "unknown setting": (
        "awq",
        {"rotation": "hadamard"},
        "rotation='hadamard' is a setting that Octavo does not know.*take it out",
    ),
    "gptq of activations": ("gptq", {"act_bits": 8}, r"act_bits=8 asks for a feature .*accepted: absent, 16, 32"),
    "awq of floats": ("awq", {"data_type": "mx_fp"}, "data_type='mx_fp' asks for a feature"),
    "gptq bits": ("gptq", {"bits": 5}, "bits=5 is not supported; supported: 2, 3, 4, 8"),
    "gptq marlin": ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format='marlin' is not supported"),
    "gptq marlin flag": ("gptq", {"is_marlin_format": True}, "is_marlin_format=True"),
    "gptq words": ("gptq", {"pack_dtype": "int64"}, "pack_dtype='int64' is not supported"),
    "gptq exceptions": (
        "gptq",
        {"dynamic": {"+:.*down.*": {"bits": 8}}},
        r"\+:\.\*down.* quantises some modules with other settings",
    ),
    "gptq order without index": ("gptq, no g_idx", {"desc_act": True}, "q_proj.g_idx is missing"),
    "fp8 of another kind": ("fp8 per block", {"fmt": "e5m2"}, "fmt='e5m2' is not supported; supported: e4m3"),
    "fp8 blocks": (
        "fp8 per block",
        {"weight_block_size": [128, 0]},
        r"weight_block_size=\[128, 0\] is not two positive",
    ),
    "fp8 other blocks": (
        "fp8 per block",
        {"weight_block_size": [64, 64]},
        r"weight_scale_inv \(F32 \[1, 1\]\) is not \[2, 2\]",
    ),
    "ct format": ("W4A16", ct_config(int_weights(), "marlin-24"), "format='marlin-24' is not supported"),
    "ct status": ("W4A16", {"quantization_status": "initialized"}, "status='initialized' is not supported"),
    "ct sparsity": ("W4A16", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "format='sparse-24-bitmask'"),
    "ct transforms": (
        "W4A16",
        {"transform_config": {"r1": {}}},
        "transform_config=.* is a setting that Octavo does not know",
    ),
    "ct bits": (
        "W4A16",
        ct_config(int_weights(3), "pack-quantized"),
        "num_bits=3 is not supported; supported: 2, 4, 8",
    ),
    "ct type": ("W4A16", ct_config(int_weights(type="mx"), "pack-quantized"), "type='mx' is not supported"),
    "ct blocks of integers": (
        "W8A8",
        ct_config(int_weights(8, None, strategy="block", block_structure=[32, 32]), "int-quantized"),
        "strategy='block' is not supported",
    ),
    "ct blocks without size": ("W8A8", ct_config(float_weights("block"), "float-quantized"), "needs a block_structure"),
    "ct dynamic weights": ("W4A16", ct_config(int_weights(dynamic=True), "pack-quantized"), "dynamic=True"),
    "ct no target": (
        "W4A16",
        ct_config(int_weights(), "pack-quantized", targets=["re:.*mlp.*"]),
        "self_attn.q_proj is quantised, but no group",
    ),
    "ct ignored": ("W4A16", {"ignore": [Q]}, "q_proj.* is of a module that `ignore` lists, and yet quantised"),
    "ct ignored by pattern": ("W4A16", {"ignore": ["re:.*self_attn.*"]}, "is of a module that `ignore` lists"),
    "ct slow pattern": ("W4A16", {"ignore": ["re:(a+)+$"]}, "may match forever: list the modules by name"),
    "ct slower pattern": ("W4A16", {"ignore": ["re:" + ".*a" * 9]}, "may match forever"),
    "ct no pattern": ("W4A16", {"ignore": ["re:(((("]}, "is no regular expression"),
    "ct missing zeros": (
        "W4A16",
        ct_config(int_weights(symmetric=False), "pack-quantized"),
        "q_proj.weight_zero_point is missing",
    ),
    "ct missing index": (
        "W4A16",
        ct_config(int_weights(actorder="group"), "pack-quantized"),
        "q_proj.weight_g_idx is missing",
    ),
}
"""Name -> a kind, what its `quantization_config` says otherwise, the message."""


@pytest.mark.parametrize("name", CONFIGS)
def test_settings_are_refused_by_name(name: str, tmp_path: Path) -> None:
    kind, changes, message = CONFIGS[name]
    write(tmp_path, KINDS[kind][0])
    configure(tmp_path, quantization_config={**KINDS[kind][0].config, **changes})
    with pytest.raises((ModelFileError, UnsupportedModelError), match=message) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def drop(part: str) -> Change:
    return lambda tensors: tensors.pop(f"{Q}.{part}")


def put(part: str, tensor: Tensor) -> Change:
    return lambda tensors: tensors.update({f"{Q}.{part}": tensor})


def edit(part: str, place: tuple[int, ...], value: float) -> Change:
    def change(tensors: Tensors) -> None:
        data = tensors[f"{Q}.{part}"].data.copy()
        data[place] = value
        put(part, Tensor(tensors[f"{Q}.{part}"].dtype, data))(tensors)

    return change


TENSORS: dict[str, tuple[str, Change, str]] = {
    "no scales": ("awq", drop("scales"), r"q_proj.scales is missing.*fetch both again"),
    "no zeros": ("awq", drop("qzeros"), "q_proj.qzeros is missing"),
    "no codes": ("gptq", drop("qweight"), r"lacks tensors|holds codes that no quantised weight is made of"),
    "codes of another type": (
        "awq",
        put("qweight", integers(np.zeros((128, 16), np.int64))),
        "q_proj.qweight .* is not stored as I32",
    ),
    "codes in a row": ("awq", put("qweight", integers(np.zeros(128, np.int32))), "q_proj.qweight .* is no matrix"),
    "no outputs": ("awq", put("qweight", integers(np.zeros((128, 0), np.int32))), "q_proj.qweight .* is no matrix"),
    "too many codes": (
        "awq",
        put("qweight", integers(np.zeros((160, 16), np.int32))),
        r"q_proj.qzeros .* is not \[5, 16\]",
    ),
    "whole layer wider": (
        "gptq",
        put("scales", floats(np.ones((4, 136)), "F16")),
        r"q_proj.scales .* is not \[4, 128\]",
    ),
    "scales of whole numbers": (
        "gptq",
        put("scales", integers(np.ones((4, 128), np.int32))),
        "q_proj.scales .* is not stored as F32 or F16",
    ),
    "scale without a value": ("gptq", edit("scales", (3, 5), np.nan), r"q_proj.scales .* holds nan at \[3, 5\]"),
    "endless scale": (
        "fp8 per block",
        edit("weight_scale_inv", (0, 0), np.inf),
        "q_proj.weight_scale_inv .* holds inf",
    ),
    "group that there is not": (
        "gptq, act-order",
        edit("g_idx", (7,), 4),
        r"q_proj.g_idx .* puts input 7 into group 4; there are 4",
    ),
    "group before the first": (
        "W4A16, act-order",
        edit("weight_g_idx", (0,), -1),
        "weight_g_idx .* puts input 0 into group -1",
    ),
    "index too short": ("gptq", put("g_idx", integers(np.zeros(127, np.int32))), r"q_proj.g_idx .* is not \[128\]"),
    "odd words": (
        "gptq, 3 bits",
        put("qweight", integers(np.zeros((13, 128), np.int32))),
        "holds no whole number of 3-bit codes",
    ),
    "another shape": (
        "W4A16",
        put("weight_shape", integers(np.array([128, 120], np.int64))),
        r"weight_shape .* says \[128, 120\]",
    ),
    "a shape without end": (
        "W4A16",
        put("weight_shape", integers(np.array([128, 1 << 62], np.int64))),
        "weight_shape .* says",
    ),
    "a negative shape": (
        "W4A16",
        put("weight_shape", integers(np.array([128, -128], np.int64))),
        "weight_shape .* says",
    ),
    "zeros beside none": (
        "awq, middle zero points",
        edit("qzeros", (0, 0), 0),
        "q_proj.qzeros .* holds other zero points than 8",
    ),
    "two scales": (
        "fp8 per block",
        put("weight_scale", floats(np.ones(1), "F32")),
        "q_proj.weight .* needs one tensor of scales",
    ),
    "no scale": ("fp8 per block", drop("weight_scale_inv"), "q_proj.weight .* needs one tensor of scales"),
    "codes left over": (
        "gptq",
        put("extra", integers(np.zeros(3, np.int32))),
        r"holds codes that no quantised weight is made of: .*q_proj.extra",
    ),
    "floats left over": ("gptq", put("extra", floats(np.zeros(3), "F32")), "would leave out"),
    "a type that is not read": (
        "fp8 per block",
        put("weight", Tensor("F8_E5M2", np.zeros((128, 128), np.uint8))),
        "is stored as F8_E5M2; Octavo reads .*F8_E4M3",
    ),
}
"""Name -> a kind, what is done to its tensors, the message."""


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit_are_named(name: str, tmp_path: Path) -> None:
    kind, change, message = TENSORS[name]
    write(tmp_path, KINDS[kind][0])
    tensors = stored(tmp_path)
    change(tensors)
    rewrite(tmp_path, tensors)
    with pytest.raises(ModelError, match=message) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_settings_of_another_file(tmp_path: Path) -> None:
    write(tmp_path, KINDS["W4A16"][0])
    configure(tmp_path, quantization_config=dict(KINDS["awq"][0].config))
    with pytest.raises(
        ModelFileError, match=r"codes that no quantised weight is made of: .*weight_packed \(I32\).* others"
    ):
        load(tmp_path)


def test_codes_are_read_only_where_the_config_speaks_of_them(tmp_path: Path) -> None:
    write(tmp_path, KINDS["awq"][0])
    configure(tmp_path, quantization_config=None)
    with pytest.raises(UnsupportedModelError, match=r"is stored as I32; .* F16, BF16. .* lacks quantization_config"):
        open_checkpoint([tmp_path / FILE])
