"""Qwen2 and Qwen2.5 (Yang et al. 2024): llama's decoder with biases on q, k and v."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import PRE_NORMS
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


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, PRE_NORMS)


QWEN2 = Family(
    name="qwen2",
    gguf_architectures=("qwen2",),
    hf_architectures=("Qwen2ForCausalLM",),
    hf_model_types=("qwen2",),
    define=define,
)
