"""Qwen3 (Yang et al. 2025): llama's decoder with norms on every head of q and k."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder import pre_norm_decoder
from octavo.model.families.naming import PRE_NORMS, QK_NORMS, decoder_sources, redundant_tensors
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.families.windows import qwen_layers
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition

_HEAD_DIM = 128


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    return replace(gguf_decoder(header, gguf_fields(header, "qwen3"), "qwen3"), qk_norm=True)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    plain = with_hf_biases(hf_decoder(header, fields, "qwen3", head_dim=_HEAD_DIM), fields)
    return replace(plain, layers=qwen_layers(fields, plain.sizes.num_layers), qk_norm=True)


def define(header: CheckpointHeader) -> ModelDefinition:
    naming = header.naming
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[naming](header)
    program = pre_norm_decoder(config)
    sources = decoder_sources(program, naming, PRE_NORMS[naming] | QK_NORMS[naming])
    return ModelDefinition(program, sources, redundant_tensors(config, naming))


QWEN3 = Family(
    name="qwen3",
    gguf_architectures=("qwen3",),
    hf_architectures=("Qwen3ForCausalLM",),
    hf_model_types=("qwen3",),
    define=define,
)
