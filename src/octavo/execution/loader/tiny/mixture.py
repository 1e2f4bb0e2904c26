"""The experts of a tiny model: shapes and names in Hugging Face files, and how GGUF files stack them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.stored import Stored

_MIXTRAL_PARTS = {"w1": "gate", "w2": "down", "w3": "up"}
_EXPERT = re.compile(
    r"(?P<prefix>model\.layers\.\d+)\.(mlp|block_sparse_moe)\.experts\.(?P<expert>\d+)\.(?P<part>\w+)\.weight"
)
GGUF_PARTS = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "experts.gate": "ffn_gate_exps",
    "experts.up": "ffn_up_exps",
    "experts.down": "ffn_down_exps",
}
"""Hugging Face's part of a layer, and what `stacked` calls it -> GGUF's."""
ROUTERS = ("block_sparse_moe.gate", "mlp.gate")


def mixture_shapes(model: TinyModel) -> dict[str, tuple[int, int]]:
    """Part of a layer -> shape of its matrix: router, experts and what every token meets."""
    hidden, inner, shared = model.hidden, model.expert_width, model.intermediate
    block = "block_sparse_moe" if model.architecture == "mixtral" else "mlp"
    parts = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    named = {file: parts[part] for file, part in _MIXTRAL_PARTS.items()}
    if model.architecture != "mixtral":
        named = {f"{part}_proj": shape for part, shape in parts.items()}
    shapes = {f"{block}.gate": (model.experts, hidden)}
    shapes |= {f"{block}.experts.{e}.{part}": s for e in range(model.experts) for part, s in named.items()}
    if model.architecture == "qwen2_moe":
        shapes |= {
            "mlp.shared_expert.gate_proj": (shared, hidden),
            "mlp.shared_expert.up_proj": (shared, hidden),
            "mlp.shared_expert.down_proj": (hidden, shared),
            "mlp.shared_expert_gate": (1, hidden),
        }
    return shapes


def is_router(part: str) -> bool:
    """Whether a matrix decides by its one or few outputs: such stay floats in every file."""
    return part in ROUTERS or part == "mlp.shared_expert_gate"


def stacked(weights: Mapping[str, Stored]) -> dict[str, Stored]:
    """All tensors; experts of a layer as one `[experts, out, in]`, the switch of a shared expert as a vector."""
    found: dict[str, Stored] = {}
    experts: dict[str, list[Stored]] = defaultdict(list)
    for name, tensor in weights.items():
        match = _EXPERT.fullmatch(name)
        if match is not None:
            part = _MIXTRAL_PARTS.get(match["part"], match["part"].removesuffix("_proj"))
            experts[f"{match['prefix']}.experts.{part}.weight"].append(tensor)
        elif name.endswith("shared_expert_gate.weight"):
            found[name] = Stored(tensor.type, tensor.shape[1:], tensor.raw)
        else:
            found[name] = tensor
    return found | {name: _stack(tensors) for name, tensors in experts.items()}


def _stack(tensors: Iterable[Stored]) -> Stored:
    listed = list(tensors)
    raw = np.concatenate([tensor.raw for tensor in listed])
    return Stored(listed[0].type, (len(listed), *listed[0].shape), raw)


def gguf_numbers(model: TinyModel) -> dict[str, int]:
    """Metadata keys of the mixture."""
    if not model.has_experts:
        return {}
    numbers = {"expert_count": model.experts, "expert_used_count": model.active_experts}
    if model.architecture != "mixtral":
        numbers["expert_feed_forward_length"] = model.expert_width
    if model.architecture == "qwen2_moe":
        numbers["expert_shared_feed_forward_length"] = model.intermediate
    return numbers


def hf_keys(model: TinyModel) -> dict[str, object]:
    """Keys of config.json."""
    if not model.has_experts:
        return {}
    if model.architecture == "mixtral":
        return {"num_local_experts": model.experts, "num_experts_per_tok": model.active_experts, "sliding_window": None}
    keys: dict[str, object] = {
        "num_experts": model.experts,
        "num_experts_per_tok": model.active_experts,
        "moe_intermediate_size": model.expert_width,
        "norm_topk_prob": model.architecture == "qwen3_moe",
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(model.dense_layers),
    }
    return keys | ({"shared_expert_intermediate_size": model.intermediate} if model.architecture == "qwen2_moe" else {})
