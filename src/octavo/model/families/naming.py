"""How files name the weights of a decoder: canonical name -> name in the file."""

from collections.abc import Mapping

from octavo.model.config import DecoderConfig
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import WeightSource

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

PRE_NORMS = {
    Naming.GGUF: {"attn.norm": "attn_norm", "mlp.norm": "ffn_norm"},
    Naming.HF: {"attn.norm": "input_layernorm", "mlp.norm": "post_attention_layernorm"},
}


def decoder_sources(config: DecoderConfig, naming: Naming, norms: Mapping[str, str]) -> dict[str, WeightSource]:
    """Sources of a decoder's weights, without transforms. `norms` are the norms of a layer, canonical -> file."""
    top = {"embed": EMBEDDING[naming], "output_norm": OUTPUT_NORM[naming]}
    if not config.tied_embeddings:
        top["output"] = OUTPUT[naming]
    linears = LINEARS[naming]
    parts = {name: f"{file}.weight" for name, file in (*linears.items(), *norms.items())}
    if config.qkv_bias:
        parts |= {f"{name}.bias": f"{linears[name]}.bias" for name in ("attn.q", "attn.k", "attn.v")}
    layers = {
        f"layers.{i}.{name}": LAYER_PREFIX[naming].format(i) + file
        for i in range(config.sizes.num_layers)
        for name, file in parts.items()
    }
    return {name: WeightSource(file) for name, file in (top | layers).items()}


def redundant_tensors(config: DecoderConfig, naming: Naming) -> tuple[str, ...]:
    """Patterns of tensors that say again what the config says."""
    if naming is Naming.GGUF:
        return ("rope_freqs.weight",)
    tables = "model.layers.*.self_attn.rotary_emb.inv_freq"
    return (tables, OUTPUT[naming]) if config.tied_embeddings else (tables,)


def gguf_is_tied(header: CheckpointHeader) -> bool:
    """GGUF says that the embeddings are tied by leaving the output matrix out."""
    return OUTPUT[Naming.GGUF] not in header.shapes


def model_name(header: CheckpointHeader, family: str) -> str:
    """The model's name for itself, or its family's."""
    name = header.metadata.get("general.name" if header.naming is Naming.GGUF else "_name_or_path")
    return name if isinstance(name, str) and name else family
