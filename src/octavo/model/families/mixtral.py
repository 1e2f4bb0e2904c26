"""Mixtral (Jiang et al. 2024): llama's decoder with experts in every layer. Its GGUF files are llama's (see there)."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.mixture import (
    MIXTRAL_NAMES,
    QWEN_NAMES,
    hf_mixture,
    is_fused,
    routing,
)
from octavo.model.families.naming import PRE_NORMS
from octavo.model.families.plain import hf_decoder
from octavo.model.families.sizes import hf_fields
from octavo.model.families.windows import MAX_WINDOW, layer_kinds
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    fields.accept("attention_bias", False)
    plain = hf_decoder(header, fields, "mixtral", with_experts=True)
    num_layers = plain.sizes.num_layers
    window = fields.integer("sliding_window", 1, MAX_WINDOW) if fields.has("sliding_window") else None
    mixture = hf_mixture(fields, [True] * num_layers, plain.sizes.mlp_size, routing(renormalised=True))
    layers = plain.layers if window is None else layer_kinds([True] * num_layers, window)
    return replace(plain, layers=layers, mixture=mixture)


_READ = {Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    """Files with one tensor for all experts name everything as qwen's do."""
    names = QWEN_NAMES if is_fused(header) else MIXTRAL_NAMES
    return decoder_definition(header, _READ, PRE_NORMS, experts={Naming.HF: names})


MIXTRAL = Family(
    name="mixtral",
    gguf_architectures=(),
    hf_architectures=("MixtralForCausalLM",),
    hf_model_types=("mixtral",),
    define=define,
)
