"""Gemma (Gemma Team 2024): llama's decoder with scaled embeddings, GELU gates and wide heads."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import PRE_NORMS, norms_plus_one
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation
from octavo.model.sources import ModelDefinition

_GELU = "gelu_pytorch_tanh"
_HEAD_DIM = 256


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    return _gemma(gguf_decoder(header, gguf_fields(header, "gemma"), "gemma"))


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    """The first files name `gelu` and mean its tanh form, which the models were trained with."""
    fields = hf_fields(header)
    fields.accept("hidden_act", "gelu", _GELU)
    fields.accept("use_bidirectional_attention", False)
    plain = hf_decoder(
        header, fields, "gemma", activation_key="hidden_activation", activation=_GELU, head_dim=_HEAD_DIM, tied=True
    )
    return _gemma(with_hf_biases(plain, fields))


def _gemma(plain: DecoderConfig) -> DecoderConfig:
    return replace(plain, activation=Activation.GELU_TANH, embed_scale=plain.sizes.hidden_size**0.5)


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, PRE_NORMS, change=norms_plus_one)


GEMMA = Family(
    name="gemma",
    gguf_architectures=("gemma",),
    hf_architectures=("GemmaForCausalLM",),
    hf_model_types=("gemma",),
    define=define,
)
