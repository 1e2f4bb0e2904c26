"""Granite (IBM 2024): llama's decoder with a multiplier each on embeddings, attention's scores, what blocks add, and
logits."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import PRE_NORMS, unpermuted
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition

_MULTIPLIERS = {
    Naming.GGUF: ("embedding_scale", "attention.scale", "residual_scale", "logit_scale"),
    Naming.HF: ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"),
}
_MOST = 1e6


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    """0 means "not set"; the scores' scale is then that of other models."""
    fields, keys = gguf_fields(header, "granite"), _MULTIPLIERS[Naming.GGUF]
    plain = gguf_decoder(header, fields, "granite", computed=keys)
    embed, scores, residual, logits = (fields.number(key, 0, _MOST, default=0.0) for key in keys)
    return _multiplied(plain, embed or 1.0, scores or plain.attention_scale, residual or 1.0, logits or 1.0)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    embed, scores, residual, logits = (_hf_number(fields, key) for key in _MULTIPLIERS[Naming.HF])
    plain = with_hf_biases(hf_decoder(header, fields, "granite"), fields)
    return _multiplied(plain, embed, scores, residual, logits)


def _hf_number(fields: Fields, key: str) -> float:
    return fields.number(key, 1e-9, _MOST, default=1.0)


def _multiplied(plain: DecoderConfig, embed: float, scores: float, residual: float, logits: float) -> DecoderConfig:
    """Logits are divided by their multiplier."""
    return replace(plain, embed_scale=embed, attention_scale=scores, residual_scale=residual, logit_scale=1 / logits)


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    """GGUF files of this architecture interleave the rotary pairs of q and k, as llama's do."""
    return decoder_definition(header, _READ, PRE_NORMS, change=unpermuted)


GRANITE = Family(
    name="granite",
    gguf_architectures=("granite",),
    hf_architectures=("GraniteForCausalLM",),
    hf_model_types=("granite",),
    define=define,
)
