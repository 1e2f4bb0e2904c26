"""Gemma 3, text (Gemma Team 2025): norms around both blocks and on q and k, sliding-window layers between full ones
with a rotary base of their own, scaled embeddings, GELU gates."""

from dataclasses import replace

from octavo.model.config import DecoderConfig, Sizes
from octavo.model.families.decoder import sandwich_norm_decoder
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import QK_NORMS, SANDWICH_NORMS, norms_plus_one
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.families.windows import MAX_WINDOW, gguf_sliding, hf_sliding, layer_kinds, periodic
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation, RopeSpec
from octavo.model.rope import rope_spec, scaled_rope
from octavo.model.sources import ModelDefinition

_GELU = "gelu_pytorch_tanh"
_HEAD_DIM = 256
_PERIOD = 6
"""Every sixth layer sees everything, unless the file says otherwise."""
_LOCAL_BASE = 10_000.0
_GLOBAL_BASE = 1_000_000.0
_LOCAL, _GLOBAL = 0, 1
"""Indices of the two rotary embeddings."""
_LAYERS_OF_27B = 62
_WINDOW_KEY, _LOGIT_CAP_KEY = "attention.sliding_window", "final_logit_softcapping"


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    """The format has no key for `query_pre_attn_scalar`: it is the head size, but for the 27B model the width per
    head."""
    fields = gguf_fields(header, "gemma3")
    plain = gguf_decoder(header, fields, "gemma3", computed=(_WINDOW_KEY, _LOGIT_CAP_KEY))
    s = plain.sizes
    local = rope_spec(s.head_dim, fields.number("rope.freq_base_swa", 1, 1e12, default=_LOCAL_BASE))
    scalar = s.hidden_size // s.num_heads if s.num_layers == _LAYERS_OF_27B else s.head_dim
    sliding = gguf_sliding(fields, s.num_layers, _PERIOD)
    window = fields.integer(_WINDOW_KEY, 1, MAX_WINDOW)
    return _gemma3(plain, fields, (local, *plain.ropes), sliding, window, scalar)


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    fields.accept("attn_logit_softcapping")
    fields.accept("use_bidirectional_attention", False)
    plain = hf_decoder(
        header, fields, "gemma3", activation_key="hidden_activation", activation=_GELU, head_dim=_HEAD_DIM, tied=True
    )
    ropes = _hf_ropes(fields, plain.sizes, header.context)
    window = fields.integer("sliding_window", 1, MAX_WINDOW)
    scalar = fields.number("query_pre_attn_scalar", 1e-6, 1e6, default=256)
    sliding = _hf_pattern(fields, plain.sizes.num_layers)
    return _gemma3(with_hf_biases(plain, fields), fields, ropes, sliding, window, scalar)


def _gemma3(
    plain: DecoderConfig,
    fields: Fields,
    ropes: tuple[RopeSpec, ...],
    sliding: list[bool],
    window: int,
    scalar: float,
) -> DecoderConfig:
    return replace(
        plain,
        ropes=ropes,
        layers=layer_kinds(sliding, window, local_rope=_LOCAL, full_rope=_GLOBAL),
        activation=Activation.GELU_TANH,
        attention_scale=scalar**-0.5,
        logit_softcap=fields.number(_LOGIT_CAP_KEY, 0, 1e6, default=0.0) or None,
        embed_scale=plain.sizes.hidden_size**0.5,
        qk_norm=True,
    )


def _hf_pattern(fields: Fields, layers: int) -> list[bool]:
    """Older files give a period."""
    key = "sliding_window_pattern" if fields.has("sliding_window_pattern") else "_sliding_window_pattern"
    return hf_sliding(fields, layers, periodic(fields.integer(key, 1, 1 << 10, default=_PERIOD), layers))


def _hf_ropes(fields: Fields, sizes: Sizes, context: int | None) -> tuple[RopeSpec, RopeSpec]:
    """Newer files hold one object per kind of layer in `rope_parameters`; older ones scale only the full layers."""
    both = fields.nested("rope_parameters")
    full = both.nested("full_attention") if fields.has("rope_parameters") else fields.nested("rope_scaling")
    local_base = fields.number("rope_local_base_freq", 1, 1e12, default=_LOCAL_BASE)
    global_base = fields.number("rope_theta", 1, 1e12, default=_GLOBAL_BASE)
    return (
        scaled_rope(both.nested("sliding_attention"), sizes, context, base=local_base),
        scaled_rope(full, sizes, context, base=global_base),
    )


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(
        header, _READ, SANDWICH_NORMS, QK_NORMS, build=sandwich_norm_decoder, change=norms_plus_one
    )


GEMMA3 = Family(
    name="gemma3",
    gguf_architectures=("gemma3",),
    hf_architectures=("Gemma3ForCausalLM",),
    hf_model_types=("gemma3_text",),
    define=define,
)
