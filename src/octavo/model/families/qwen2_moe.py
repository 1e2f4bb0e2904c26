"""Qwen2 MoE (Yang et al. 2024): qwen2's decoder with many small experts in the place of most MLPs, and one that every
token meets."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder import pre_norm_decoder
from octavo.model.families.mixture import (
    GGUF_NAMES,
    QWEN_NAMES,
    gguf_mixture,
    hf_mixture,
    hf_sparse_layers,
    hf_width,
    mixture_sources,
    routing,
)
from octavo.model.families.naming import PRE_NORMS, decoder_sources, redundant_tensors
from octavo.model.families.plain import gguf_decoder, hf_decoder
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition

_EXPERTS = {Naming.GGUF: GGUF_NAMES, Naming.HF: QWEN_NAMES}


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "qwen2moe")
    plain = gguf_decoder(header, fields, "qwen2_moe", with_experts=True)
    mixture = gguf_mixture(header, fields, plain.sizes, renormalised=False, shared=True)
    return replace(plain, mixture=mixture)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    fields.accept("use_sliding_window", False)
    plain = hf_decoder(header, fields, "qwen2_moe", with_experts=True)
    fields.accept("layer_types", ["full_attention"] * plain.sizes.num_layers)
    sparse = hf_sparse_layers(fields, plain.sizes.num_layers)
    rule = routing(renormalised=fields.flag("norm_topk_prob", default=False))
    shared = hf_width(fields, "shared_expert_intermediate_size")
    mixture = replace(hf_mixture(fields, sparse, hf_width(fields, "moe_intermediate_size"), rule), shared_size=shared)
    return replace(plain, qkv_bias=fields.flag("qkv_bias", default=True), mixture=mixture)


def define(header: CheckpointHeader) -> ModelDefinition:
    naming = header.naming
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[naming](header)
    program = pre_norm_decoder(config)
    sources = decoder_sources(program, naming, PRE_NORMS[naming])
    sources |= mixture_sources(config, header, _EXPERTS[naming])
    return ModelDefinition(program, sources, redundant_tensors(config, naming))


QWEN2_MOE = Family(
    name="qwen2_moe",
    gguf_architectures=("qwen2moe",),
    hf_architectures=("Qwen2MoeForCausalLM",),
    hf_model_types=("qwen2_moe",),
    define=define,
)
