"""Qwen3 MoE (Yang et al. 2025): qwen3's decoder with many small experts in the place of most MLPs."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.mixture import QWEN_EXPERTS, gguf_mixture, qwen_mixture
from octavo.model.families.naming import PRE_NORMS, QK_NORMS
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "qwen3moe")
    plain = gguf_decoder(header, fields, "qwen3_moe", with_experts=True)
    mixture = gguf_mixture(header, fields, plain.sizes, renormalised=True)
    return replace(plain, qk_norm=True, mixture=mixture)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    plain = with_hf_biases(hf_decoder(header, fields, "qwen3_moe", with_experts=True), fields)
    return replace(plain, qk_norm=True, mixture=qwen_mixture(fields, plain.sizes.num_layers))


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, PRE_NORMS, QK_NORMS, experts=QWEN_EXPERTS)


QWEN3_MOE = Family(
    name="qwen3_moe",
    gguf_architectures=("qwen3moe",),
    hf_architectures=("Qwen3MoeForCausalLM",),
    hf_model_types=("qwen3_moe",),
    define=define,
)
