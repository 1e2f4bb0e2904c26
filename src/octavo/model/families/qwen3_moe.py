"""Qwen3 MoE (Yang et al. 2025): qwen3's decoder with many small experts in the place of most MLPs."""

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
from octavo.model.families.naming import PRE_NORMS, QK_NORMS, decoder_sources, redundant_tensors
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition

_EXPERTS = {Naming.GGUF: GGUF_NAMES, Naming.HF: QWEN_NAMES}


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "qwen3moe")
    plain = gguf_decoder(header, fields, "qwen3_moe", with_experts=True)
    mixture = gguf_mixture(header, fields, plain.sizes, renormalised=True)
    return replace(plain, qk_norm=True, mixture=mixture)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    fields.accept("use_sliding_window", False)
    plain = with_hf_biases(hf_decoder(header, fields, "qwen3_moe", with_experts=True), fields)
    fields.accept("layer_types", ["full_attention"] * plain.sizes.num_layers)
    sparse = hf_sparse_layers(fields, plain.sizes.num_layers)
    rule = routing(renormalised=fields.flag("norm_topk_prob", default=False))
    mixture = hf_mixture(fields, sparse, hf_width(fields, "moe_intermediate_size"), rule)
    return replace(plain, qk_norm=True, mixture=mixture)


def define(header: CheckpointHeader) -> ModelDefinition:
    naming = header.naming
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[naming](header)
    program = pre_norm_decoder(config)
    sources = decoder_sources(program, naming, PRE_NORMS[naming] | QK_NORMS[naming])
    sources |= mixture_sources(config, header, _EXPERTS[naming])
    return ModelDefinition(program, sources, redundant_tensors(config, naming))


QWEN3_MOE = Family(
    name="qwen3_moe",
    gguf_architectures=("qwen3moe",),
    hf_architectures=("Qwen3MoeForCausalLM",),
    hf_model_types=("qwen3_moe",),
    define=define,
)
