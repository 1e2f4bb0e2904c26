"""Llama (Touvron et al. 2023; Dubey et al. 2024): pre-norm decoder with SwiGLU and grouped-query attention."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder import pre_norm_decoder
from octavo.model.families.mixture import GGUF_NAMES, gguf_mixture, mixture_sources
from octavo.model.families.naming import PRE_NORMS, decoder_sources, redundant_tensors, unpermuted
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    """Mixtral's files say that they are llama's, with experts."""
    fields = gguf_fields(header, "llama")
    config = gguf_decoder(header, fields, "llama", with_experts=True)
    return replace(config, mixture=gguf_mixture(header, fields, config.sizes, renormalised=True))


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    return with_hf_biases(hf_decoder(header, fields, "llama"), fields)


def define(header: CheckpointHeader) -> ModelDefinition:
    """GGUF files of this architecture interleave the rotary pairs of q and k."""
    naming = header.naming
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[naming](header)
    program = pre_norm_decoder(config)
    sources = decoder_sources(program, naming, PRE_NORMS[naming])
    if naming is Naming.GGUF:
        sources = unpermuted(sources, config) | mixture_sources(config, header, GGUF_NAMES)
    return ModelDefinition(program, sources, redundant_tensors(config, naming))


LLAMA = Family(
    name="llama",
    gguf_architectures=("llama",),
    hf_architectures=("LlamaForCausalLM",),
    hf_model_types=("llama",),
    define=define,
)
