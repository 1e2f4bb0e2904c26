"""Gemma 2 (Gemma Team 2024, arXiv:2408.00118): norms around both blocks, soft caps on scores and logits, a sliding
window in every other layer."""

from dataclasses import replace

from octavo.model.config import DecoderConfig, LayerKind
from octavo.model.families.decoder import sandwich_norm_decoder
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import SANDWICH_NORMS, norms_plus_one
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.families.windows import MAX_WINDOW, gguf_sliding, hf_sliding, layer_kinds, periodic
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation
from octavo.model.sources import ModelDefinition

_GELU = "gelu_pytorch_tanh"
_HEAD_DIM = 256
_PERIOD = 2
_WINDOW = 4096
_SCORE_CAP, _LOGIT_CAP = 50.0, 30.0
_SCALAR = 256.0
_LAYERS_OF_27B = 46
_SCORE_CAP_KEY, _LOGIT_CAP_KEY = "attn_logit_softcapping", "final_logit_softcapping"


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    """The format has no key for `query_pre_attn_scalar`: it is the head size, but for the 27B model the width per
    head."""
    fields = gguf_fields(header, "gemma2")
    window_key = "attention.sliding_window"
    plain = gguf_decoder(header, fields, "gemma2", computed=(_SCORE_CAP_KEY, _LOGIT_CAP_KEY, window_key))
    s = plain.sizes
    scalar = s.hidden_size // s.num_heads if s.num_layers == _LAYERS_OF_27B else s.head_dim
    sliding = gguf_sliding(fields, s.num_layers, _PERIOD)
    window = fields.integer(window_key, 1, MAX_WINDOW, default=_WINDOW)
    return _gemma2(plain, fields, layer_kinds(sliding, window), scalar)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    fields.accept("use_bidirectional_attention", False)
    plain = hf_decoder(
        header, fields, "gemma2", activation_key="hidden_activation", activation=_GELU, head_dim=_HEAD_DIM, tied=True
    )
    layers = plain.sizes.num_layers
    sliding = hf_sliding(fields, layers, periodic(_PERIOD, layers))
    window = fields.integer("sliding_window", 1, MAX_WINDOW, default=_WINDOW)
    scalar = fields.number("query_pre_attn_scalar", 1e-6, 1e6, default=_SCALAR)
    return _gemma2(with_hf_biases(plain, fields), fields, layer_kinds(sliding, window), scalar)


def _gemma2(plain: DecoderConfig, fields: Fields, layers: tuple[LayerKind, ...], scalar: float) -> DecoderConfig:
    return replace(
        plain,
        layers=layers,
        activation=Activation.GELU_TANH,
        embed_scale=plain.sizes.hidden_size**0.5,
        attention_scale=scalar**-0.5,
        attention_softcap=_cap(fields, _SCORE_CAP_KEY, _SCORE_CAP),
        logit_softcap=_cap(fields, _LOGIT_CAP_KEY, _LOGIT_CAP),
    )


def _cap(fields: Fields, key: str, default: float) -> float | None:
    """None where the file says null or 0."""
    if key in fields.values and fields.values[key] is None:
        return None
    return fields.number(key, 0, 1e6, default=default) or None


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, SANDWICH_NORMS, build=sandwich_norm_decoder, change=norms_plus_one)


GEMMA2 = Family(
    name="gemma2",
    gguf_architectures=("gemma2",),
    hf_architectures=("Gemma2ForCausalLM",),
    hf_model_types=("gemma2",),
    define=define,
)
