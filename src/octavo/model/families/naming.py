"""How files name the weights of a decoder: canonical name -> name in the file."""

import re
from collections.abc import Mapping
from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Program
from octavo.model.sources import AddOne, UnpermuteHeads, WeightSource

EMBEDDING = {Naming.GGUF: "token_embd.weight", Naming.HF: "model.embed_tokens.weight"}
OUTPUT_NORM = {Naming.GGUF: "output_norm.weight", Naming.HF: "model.norm.weight"}
OUTPUT = {Naming.GGUF: "output.weight", Naming.HF: "lm_head.weight"}

LAYER_PREFIX = {Naming.GGUF: "blk.{}.", Naming.HF: "model.layers.{}."}

LINEARS = {
    Naming.GGUF: {
        "attn.q": "attn_q",
        "attn.k": "attn_k",
        "attn.v": "attn_v",
        "attn.out": "attn_output",
        "mlp.gate": "ffn_gate",
        "mlp.up": "ffn_up",
        "mlp.down": "ffn_down",
    },
    Naming.HF: {
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.out": "self_attn.o_proj",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
    },
}

_MLP = frozenset({"mlp.gate", "mlp.up", "mlp.down"})

PRE_NORMS = {
    Naming.GGUF: {"attn.norm": "attn_norm", "mlp.norm": "ffn_norm"},
    Naming.HF: {"attn.norm": "input_layernorm", "mlp.norm": "post_attention_layernorm"},
}


POST_NORMS = {
    Naming.GGUF: {"attn.post_norm": "post_attention_norm", "mlp.post_norm": "post_ffw_norm"},
    Naming.HF: {"attn.post_norm": "post_attention_layernorm", "mlp.post_norm": "post_feedforward_layernorm"},
}
SANDWICH_NORMS = {
    Naming.GGUF: PRE_NORMS[Naming.GGUF] | POST_NORMS[Naming.GGUF],
    Naming.HF: PRE_NORMS[Naming.HF] | POST_NORMS[Naming.HF] | {"mlp.norm": "pre_feedforward_layernorm"},
}
QK_NORMS = {
    Naming.GGUF: {"attn.q_norm": "attn_q_norm", "attn.k_norm": "attn_k_norm"},
    Naming.HF: {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"},
}

_IN_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
_BIAS = ".bias"


def decoder_sources(program: Program, naming: Naming, names: Mapping[str, str]) -> dict[str, WeightSource]:
    """Sources of a decoder's weights, without transforms.

    Args:
        names: parts of a layer beside the linears, or linears that are called otherwise: canonical -> file. Weights of
            parts that nobody names are left to the caller.
    """
    found = {name: _in_file(name, naming, LINEARS[naming] | dict(names)) for name in program.weights}
    return {name: WeightSource(file) for name, file in found.items() if file is not None}


def _in_file(weight: str, naming: Naming, parts: Mapping[str, str]) -> str | None:
    """The tensor of a weight; None: the part has no name."""
    place = _IN_LAYER.fullmatch(weight)
    if place is None:
        return {"embed": EMBEDDING, "output_norm": OUTPUT_NORM, "output": OUTPUT}[weight][naming]
    part, suffix = place[2].removesuffix(_BIAS), _BIAS if place[2].endswith(_BIAS) else ".weight"
    return LAYER_PREFIX[naming].format(place[1]) + parts[part] + suffix if part in parts else None


def unpermuted(sources: Mapping[str, WeightSource], config: DecoderConfig, naming: Naming) -> dict[str, WeightSource]:
    """The sources of models whose GGUF files interleave the rotary pairs of q and k."""
    if naming is Naming.HF:
        return dict(sources)
    s, rotary_dim = config.sizes, config.ropes[0].rotary_dim
    orders = {
        f"layers.{i}.{part}{suffix}": UnpermuteHeads(heads, s.head_dim, rotary_dim)
        for i in range(s.num_layers)
        for part, heads in (("attn.q", s.num_heads), ("attn.k", s.num_kv_heads))
        for suffix in ("", _BIAS)
    }
    return {name: replace(source, transform=orders.get(name)) for name, source in sources.items()}


def norms_plus_one(sources: Mapping[str, WeightSource], _: DecoderConfig, naming: Naming) -> dict[str, WeightSource]:
    """The sources of gemma's models: Hugging Face files hold every norm weight less one, GGUF files what is
    multiplied."""
    if naming is Naming.GGUF:
        return dict(sources)
    return {
        name: replace(source, transform=AddOne()) if name.endswith("norm") else source
        for name, source in sources.items()
    }


def _has_experts(config: DecoderConfig, layer: int) -> bool:
    return config.mixture is not None and config.mixture.layers[layer]


def redundant_tensors(config: DecoderConfig, naming: Naming) -> tuple[str, ...]:
    """Patterns of tensors that say again what the config says."""
    if naming is Naming.GGUF:
        return ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
    tables = "model.layers.*.self_attn.rotary_emb.inv_freq"
    return (tables, OUTPUT[naming]) if config.tied_embeddings else (tables,)


def gguf_is_tied(header: CheckpointHeader) -> bool:
    """GGUF says that the embeddings are tied by leaving the output matrix out."""
    return OUTPUT[Naming.GGUF] not in header.shapes


def model_name(header: CheckpointHeader, family: str) -> str:
    """The model's name for itself, or its family's."""
    name = header.metadata.get("general.name" if header.naming is Naming.GGUF else "_name_or_path")
    return name if isinstance(name, str) and name else family
