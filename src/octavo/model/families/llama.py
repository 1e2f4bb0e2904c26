"""Llama (Touvron et al. 2023; Dubey et al. 2024): pre-norm decoder with SwiGLU and grouped-query attention."""

from dataclasses import replace

from octavo.model.config import DecoderConfig, LayerKind, Sizes
from octavo.model.families.decoder import pre_norm_decoder
from octavo.model.families.naming import (
    EMBEDDING,
    PRE_NORMS,
    decoder_sources,
    gguf_is_tied,
    model_name,
    redundant_tensors,
)
from octavo.model.families.sizes import gguf_fields, gguf_sizes, hf_fields, hf_sizes
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation, RopeSpec
from octavo.model.rope import gguf_rope, hf_rope
from octavo.model.sources import ModelDefinition, UnpermuteHeads, WeightSource


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "llama")
    fields.accept("attention.sliding_window", 0)
    fields.accept("final_logit_softcapping", 0.0)
    sizes = gguf_sizes(header, fields, EMBEDDING[Naming.GGUF])
    rope = gguf_rope(fields, sizes.head_dim, header.rope_factors)
    return _config(model_name(header, "llama"), sizes, rope, tied=gguf_is_tied(header))


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    fields.accept("hidden_act", "silu")
    for key in ("attention_bias", "mlp_bias"):
        fields.accept(key, False)
    sizes = hf_sizes(fields)
    rope = hf_rope(fields, sizes.head_dim)
    return _config(model_name(header, "llama"), sizes, rope, tied=fields.flag("tie_word_embeddings", default=False))


def _config(name: str, sizes: Sizes, rope: RopeSpec, *, tied: bool) -> DecoderConfig:
    return DecoderConfig(
        family="llama",
        name=name,
        sizes=sizes,
        ropes=(rope,),
        layers=(LayerKind(),) * sizes.num_layers,
        activation=Activation.SILU,
        attention_scale=sizes.head_dim**-0.5,
        tied_embeddings=tied,
    )


def sources(config: DecoderConfig, naming: Naming) -> dict[str, WeightSource]:
    """GGUF files of this architecture interleave the rotary pairs of q and k."""
    found = decoder_sources(config, naming, PRE_NORMS[naming])
    if naming is Naming.HF:
        return found
    s, rotary_dim = config.sizes, config.ropes[0].rotary_dim
    for part, heads in (("q", s.num_heads), ("k", s.num_kv_heads)):
        for i in range(s.num_layers):
            name = f"layers.{i}.attn.{part}"
            found[name] = replace(found[name], transform=UnpermuteHeads(heads, s.head_dim, rotary_dim))
    return found


def define(header: CheckpointHeader) -> ModelDefinition:
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[header.naming](header)
    return ModelDefinition(
        pre_norm_decoder(config), sources(config, header.naming), redundant_tensors(config, header.naming)
    )


LLAMA = Family(
    name="llama",
    gguf_architectures=("llama",),
    hf_architectures=("LlamaForCausalLM",),
    hf_model_types=("llama",),
    define=define,
)
