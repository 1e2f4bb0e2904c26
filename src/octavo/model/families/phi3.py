"""Phi-3 and Phi-4 (Abdin et al. 2024): llama's decoder with q, k and v in one matrix and gate and up in another, of
whose heads a part may turn, far contexts by LongRoPE."""

from collections.abc import Mapping
from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import PRE_NORMS
from octavo.model.families.plain import gguf_decoder, hf_decoder
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.families.windows import MAX_WINDOW, layer_kinds
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition, Rows, WeightSource

_FUSED = {
    Naming.GGUF: {
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn_qkv"),
        **dict.fromkeys(("mlp.gate", "mlp.up"), "ffn_up"),
    },
    Naming.HF: {
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "self_attn.qkv_proj"),
        **dict.fromkeys(("mlp.gate", "mlp.up"), "mlp.gate_up_proj"),
    },
}
_GGUF_WINDOW = "attention.sliding_window"


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "phi3")
    plain = gguf_decoder(header, fields, "phi3", computed=(_GGUF_WINDOW,))
    return _windowed(plain, fields.integer(_GGUF_WINDOW, 0, MAX_WINDOW, default=0))


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    """Early files called LongRoPE `su` or `yarn`."""
    fields = hf_fields(header)
    for key in ("embd_pdrop", "resid_pdrop", "attention_dropout"):
        fields.number(key, 0, 1, default=0.0)
    plain = hf_decoder(header, _with_longrope(fields), "phi3", partial_rotary=True)
    return _windowed(plain, fields.integer("sliding_window", 0, MAX_WINDOW, default=0))


def _with_longrope(fields: Fields) -> Fields:
    key = "rope_scaling" if fields.has("rope_scaling") else "rope_parameters"
    scaling = fields.nested(key).values
    kinds = {name: "longrope" for name in ("type", "rope_type") if scaling.get(name) == "yarn"}
    return Fields(fields.path, {**fields.values, key: {**scaling, **kinds}}) if kinds else fields


def _windowed(plain: DecoderConfig, window: int) -> DecoderConfig:
    layers = plain.sizes.num_layers
    return replace(plain, layers=layer_kinds([True] * layers, window)) if window else plain


def _in_parts(sources: Mapping[str, WeightSource], config: DecoderConfig, _: Naming) -> dict[str, WeightSource]:
    """Rows of the fused matrices."""
    s = config.sizes
    q, kv = s.num_heads * s.head_dim, s.num_kv_heads * s.head_dim
    parts = {
        "attn.q": Rows(0, q, q + 2 * kv),
        "attn.k": Rows(q, q + kv, q + 2 * kv),
        "attn.v": Rows(q + kv, q + 2 * kv, q + 2 * kv),
        "mlp.gate": Rows(0, s.mlp_size, 2 * s.mlp_size),
        "mlp.up": Rows(s.mlp_size, 2 * s.mlp_size, 2 * s.mlp_size),
    }
    rows = {f"layers.{i}.{part}": rows for i in range(s.num_layers) for part, rows in parts.items()}
    return {name: replace(source, transform=rows.get(name)) for name, source in sources.items()}


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, PRE_NORMS, _FUSED, change=_in_parts)


PHI3 = Family(
    name="phi3",
    gguf_architectures=("phi3",),
    hf_architectures=("Phi3ForCausalLM",),
    hf_model_types=("phi3",),
    define=define,
)
