"""Qwen2 MoE (Yang et al. 2024): qwen2's decoder with many small experts in the place of most MLPs, and one that every
token meets."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.mixture import QWEN_EXPERTS, gguf_mixture, hf_width, qwen_mixture
from octavo.model.families.naming import PRE_NORMS
from octavo.model.families.plain import gguf_decoder, hf_decoder
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "qwen2moe")
    plain = gguf_decoder(header, fields, "qwen2_moe", with_experts=True)
    mixture = gguf_mixture(header, fields, plain.sizes, renormalised=False, shared=True)
    return replace(plain, mixture=mixture)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    plain = hf_decoder(header, fields, "qwen2_moe", with_experts=True)
    shared = hf_width(fields, "shared_expert_intermediate_size")
    mixture = replace(qwen_mixture(fields, plain.sizes.num_layers), shared_size=shared)
    return replace(plain, qkv_bias=fields.flag("qkv_bias", default=True), mixture=mixture)


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, PRE_NORMS, experts=QWEN_EXPERTS)


QWEN2_MOE = Family(
    name="qwen2_moe",
    gguf_architectures=("qwen2moe",),
    hf_architectures=("Qwen2MoeForCausalLM",),
    hf_model_types=("qwen2_moe",),
    define=define,
)
