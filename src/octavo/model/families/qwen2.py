"""Qwen2 and Qwen2.5 (Yang et al. 2024): llama's decoder with biases on q, k and v."""

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
from octavo.model.sources import ModelDefinition


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "qwen2")
    fields.accept("attention.sliding_window", 0)
    fields.accept("final_logit_softcapping", 0.0)
    sizes = gguf_sizes(header, fields, EMBEDDING[Naming.GGUF])
    rope = gguf_rope(fields, sizes.head_dim, header.rope_factors)
    return _config(model_name(header, "qwen2"), sizes, rope, tied=gguf_is_tied(header))


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    """`sliding_window` and `max_window_layers` mean nothing unless `use_sliding_window` is set, which is refused."""
    fields = hf_fields(header)
    fields.accept("hidden_act", "silu")
    fields.accept("use_sliding_window", False)
    sizes = hf_sizes(fields)
    fields.accept("layer_types", ["full_attention"] * sizes.num_layers)
    rope = hf_rope(fields, sizes.head_dim)
    return _config(model_name(header, "qwen2"), sizes, rope, tied=fields.flag("tie_word_embeddings", default=False))


def _config(name: str, sizes: Sizes, rope: RopeSpec, *, tied: bool) -> DecoderConfig:
    return DecoderConfig(
        family="qwen2",
        name=name,
        sizes=sizes,
        ropes=(rope,),
        layers=(LayerKind(),) * sizes.num_layers,
        activation=Activation.SILU,
        attention_scale=sizes.head_dim**-0.5,
        qkv_bias=True,
        tied_embeddings=tied,
    )


def define(header: CheckpointHeader) -> ModelDefinition:
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[header.naming](header)
    naming = header.naming
    return ModelDefinition(
        pre_norm_decoder(config),
        decoder_sources(config, naming, PRE_NORMS[naming]),
        redundant_tensors(config, naming),
    )


QWEN2 = Family(
    name="qwen2",
    gguf_architectures=("qwen2",),
    hf_architectures=("Qwen2ForCausalLM",),
    hf_model_types=("qwen2",),
    define=define,
)
