"""Qwen3 (Yang et al. 2025): llama's decoder with norms on every head of q and k."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import PRE_NORMS, QK_NORMS
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


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, PRE_NORMS, QK_NORMS)


QWEN3 = Family(
    name="qwen3",
    gguf_architectures=("qwen3",),
    hf_architectures=("Qwen3ForCausalLM",),
    hf_model_types=("qwen3",),
    define=define,
)
