"""Llama (Touvron et al. 2023; Dubey et al. 2024): pre-norm decoder with SwiGLU and grouped-query attention."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.mixture import GGUF_NAMES, gguf_mixture
from octavo.model.families.naming import PRE_NORMS, unpermuted
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


_EXPERTS = {Naming.GGUF: GGUF_NAMES}
_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    """GGUF files of this architecture interleave the rotary pairs of q and k; Mixtral's have experts."""
    return decoder_definition(header, _READ, PRE_NORMS, change=unpermuted, experts=_EXPERTS)


LLAMA = Family(
    name="llama",
    gguf_architectures=("llama",),
    hf_architectures=("LlamaForCausalLM",),
    hf_model_types=("llama",),
    define=define,
)
