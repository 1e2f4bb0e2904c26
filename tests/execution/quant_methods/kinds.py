"""Every way to quantise that is read, with the number format that it is computed in."""

from collections.abc import Sequence
from typing import Any

from octavo.execution.quant import TensorType as Q
from tests.execution.quant_methods.checkpoints import Kind
from tests.execution.quant_methods.packers import awq, ct_int8, ct_packed, fp8, gptq

KV_SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}


def awq_config(group_size: int = 32, **more: Any) -> dict[str, Any]:
    usual = {"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True, "modules_to_not_convert": None}
    return usual | {"group_size": group_size} | more


def gptq_config(bits: int = 4, group_size: int = 32, **more: Any) -> dict[str, Any]:
    usual = {"quant_method": "gptq", "damp_percent": 0.1, "true_sequential": True, "model_name_or_path": "somewhere"}
    return usual | {"bits": bits, "group_size": group_size, "desc_act": False, "sym": True} | more


def ct_config(
    weights: dict[str, Any],
    file_format: str,
    activations: dict[str, Any] | None = None,
    targets: Sequence[str] = ("Linear",),
    **more: Any,
) -> dict[str, Any]:
    group = {"targets": list(targets), "weights": weights, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": file_format,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "global_compression_ratio": 1.5,
        "config_groups": {"group_0": group},
    } | more


def int_weights(bits: int = 4, group_size: int | None = 32, **more: Any) -> dict[str, Any]:
    strategy = "channel" if group_size is None else "group"
    usual = {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False, "observer": "minmax"}
    return usual | {"strategy": strategy, "group_size": group_size, "block_structure": None, "actorder": None} | more


def float_weights(strategy: str = "channel", **more: Any) -> dict[str, Any]:
    return {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": strategy} | more


TOKENS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}

KINDS: dict[str, tuple[Kind, Q]] = {
    "awq": (Kind(awq(), awq_config()), Q.Z4),
    "awq, groups of 64": (Kind(awq(64), awq_config(64)), Q.Z4),
    "awq, one group": (Kind(awq(-1), awq_config(-1)), Q.Z4),
    "awq, no zero points": (Kind(awq(zero_point=False, stored_zeros=False), awq_config(zero_point=False)), Q.Q4_0),
    "awq, middle zero points": (Kind(awq(zero_point=False), awq_config(zero_point=False)), Q.Q4_0),
    "awq, bf16 scales": (Kind(awq(scale_type="BF16"), awq_config()), Q.Z4),
    "awq, old names": (Kind(awq(), {"quant_method": "AWQ", "w_bit": 4, "q_group_size": 32, "version": "GEMM"}), Q.Z4),
    "gptq": (Kind(gptq(), gptq_config()), Q.Q4_0),
    "gptq, no g_idx": (Kind(gptq(with_g_idx=False), gptq_config()), Q.Q4_0),
    "gptq, asymmetric": (Kind(gptq(sym=False), gptq_config(sym=False)), Q.Z4),
    "gptq_v2, asymmetric": (
        Kind(gptq(sym=False, v2=True), gptq_config(sym=False, checkpoint_format="gptq_v2")), Q.Z4
    ),
    "gptq, 8 bits": (Kind(gptq(8, 64), gptq_config(8, 64)), Q.Q8_0),
    "gptq, 8 bits, asymmetric": (Kind(gptq(8, sym=False), gptq_config(8, sym=False)), Q.F32),
    "gptq, 2 bits": (Kind(gptq(2), gptq_config(2)), Q.Z4),
    "gptq, 3 bits": (Kind(gptq(3), gptq_config(3)), Q.Z4),
    "gptq, one group": (Kind(gptq(group_size=-1), gptq_config(group_size=-1)), Q.Q4_0),
    "gptq, groups of 16": (Kind(gptq(group_size=16), gptq_config(group_size=16)), Q.F32),
    "gptq, f32 scales": (Kind(gptq(scale_type="F32"), gptq_config()), Q.S8),
    "gptq, act-order": (Kind(gptq(act_order=1), gptq_config(desc_act=True)), Q.Q4_0),
    "gptq, act-order, asymmetric": (
        Kind(gptq(group_size=64, sym=False, act_order=2), gptq_config(group_size=64, sym=False, desc_act=True)), Q.Z4
    ),
    "gptq, act-order, groups of 16": (
        Kind(gptq(group_size=16, act_order=3), gptq_config(group_size=16, desc_act=True)), Q.F32
    ),
    "W4A16": (Kind(ct_packed(), ct_config(int_weights(), "pack-quantized")), Q.Q4_0),
    "W4A16, old key": (
        Kind(ct_packed(), ct_config(int_weights(), "pack-quantized"), key="compression_config"), Q.Q4_0
    ),
    "W4A16, per channel": (
        Kind(ct_packed(group_size=-1), ct_config(int_weights(group_size=None), "pack-quantized")), Q.Q4_0
    ),
    "W4A16, asymmetric": (
        Kind(ct_packed(sym=False), ct_config(int_weights(symmetric=False), "pack-quantized")), Q.Z4
    ),
    "W4A16, asymmetric, unpacked zero points": (
        Kind(ct_packed(sym=False, packed_zeros=False), ct_config(int_weights(symmetric=False), "pack-quantized")), Q.Z4
    ),
    "W4A16, act-order": (
        Kind(ct_packed(act_order=4), ct_config(int_weights(actorder="group"), "pack-quantized")), Q.Q4_0
    ),
    "W8A16": (Kind(ct_packed(8), ct_config(int_weights(8), "pack-quantized")), Q.Q8_0),
    "W8A8": (Kind(ct_int8(), ct_config(int_weights(8, None), "int-quantized", TOKENS)), Q.S8),
    "W8A8, bf16 scales": (
        Kind(ct_int8(scale_type="BF16"), ct_config(int_weights(8, None), "int-quantized", TOKENS)), Q.Q8_0
    ),
    "W8A8, static, per tensor": (
        Kind(
            ct_int8(strategy="tensor", static=True),
            ct_config(int_weights(8, None, strategy="tensor"), "int-quantized", TOKENS | {"dynamic": False}),
        ), Q.S8
    ),
    "int8, naive": (Kind(ct_int8(), ct_config(int_weights(8, None), "naive-quantized")), Q.S8),
    "float8 per channel": (
        Kind(fp8(per="channel"), ct_config(float_weights(), "float-quantized", TOKENS | {"type": "float"})), Q.F8
    ),
    "float8 per tensor": (
        Kind(
            fp8(shape=(1,), scale_type="BF16", static="input_scale"),
            ct_config(float_weights("tensor"), "float-quantized"),
        ), Q.F8
    ),
    "float8 per block": (
        Kind(
            fp8(block=(64, 32)), ct_config(float_weights("block", block_structure=[64, 32]), "float-quantized")
        ), Q.F8
    ),
    "float8, naive": (Kind(fp8(per="channel"), ct_config(float_weights(), "naive-quantized")), Q.F8),
    "fp8 per block": (
        Kind(fp8("weight_scale_inv", (128, 128)), FP8 | {"fmt": "e4m3", "weight_block_size": [128, 128]}), Q.F8
    ),
    "fp8 per tensor": (
        Kind(fp8(static="input_scale", shape=()), FP8 | {"activation_scheme": "static", "ignored_layers": ["lm_head"]}),
        Q.F8,
    ),
    "fp8, narrow blocks": (Kind(fp8("weight_scale_inv", (16, 48)), FP8 | {"weight_block_size": [16, 48]}), Q.F32),
    "fbgemm_fp8": (Kind(fp8(per="channel"), {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}), Q.F8),
}  # fmt: skip
"""By name: how files are written, and the format of every linear."""
