"""Qwen2 and Qwen2.5 (Yang et al. 2024): llama's decoder with biases on q, k and v."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder import pre_norm_decoder
from octavo.model.families.naming import PRE_NORMS, decoder_sources, redundant_tensors
from octavo.model.families.plain import gguf_decoder, hf_decoder
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.families.windows import qwen_layers
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    return replace(gguf_decoder(header, gguf_fields(header, "qwen2"), "qwen2"), qkv_bias=True)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    plain = hf_decoder(header, fields, "qwen2")
    return replace(plain, layers=qwen_layers(fields, plain.sizes.num_layers), qkv_bias=True)


def define(header: CheckpointHeader) -> ModelDefinition:
    naming = header.naming
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[naming](header)
    program = pre_norm_decoder(config)
    sources = decoder_sources(program, naming, PRE_NORMS[naming])
    return ModelDefinition(program, sources, redundant_tensors(config, naming))


QWEN2 = Family(
    name="qwen2",
    gguf_architectures=("qwen2",),
    hf_architectures=("Qwen2ForCausalLM",),
    hf_model_types=("qwen2",),
    define=define,
)
