"""Gemma 3, text (Gemma Team 2025): norms around both blocks and on q and k, sliding-window layers between full ones
with a rotary base of their own, scaled embeddings, GELU gates."""

from dataclasses import replace

from octavo.model.builder import ProgramBuilder
from octavo.model.config import DecoderConfig, LayerKind, Sizes
from octavo.model.families.decoder import finish, gated_mlp, self_attention
from octavo.model.families.naming import EMBEDDING, decoder_sources, gguf_is_tied, model_name, redundant_tensors
from octavo.model.families.sizes import gguf_fields, gguf_sizes, hf_fields, hf_sizes
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation, Program, RopeSpec
from octavo.model.rope import gguf_rope, rope_spec, scaled_rope
from octavo.model.sources import AddOne, ModelDefinition, WeightSource

_PERIOD = 6
"""Every sixth layer sees everything, unless the file says otherwise."""
_LOCAL_BASE = 10_000.0
_GLOBAL_BASE = 1_000_000.0
_LOCAL, _GLOBAL = 0, 1
"""Indices of the two rotary embeddings."""
_MAX_WINDOW = 1 << 30
_LAYERS_OF_27B = 62

_NORMS = {
    Naming.GGUF: {
        "attn.norm": "attn_norm",
        "attn.q_norm": "attn_q_norm",
        "attn.k_norm": "attn_k_norm",
        "attn.post_norm": "post_attention_norm",
        "mlp.norm": "ffn_norm",
        "mlp.post_norm": "post_ffw_norm",
    },
    Naming.HF: {
        "attn.norm": "input_layernorm",
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
        "attn.post_norm": "post_attention_layernorm",
        "mlp.norm": "pre_feedforward_layernorm",
        "mlp.post_norm": "post_feedforward_layernorm",
    },
}


def build(config: DecoderConfig) -> Program:
    """Each block's result is normed before it is added to x."""
    s = config.sizes
    b = ProgramBuilder(config.name, config.ropes)
    x = b.embed("embed", s.vocab_size, s.hidden_size, scale=config.embed_scale, out="x")
    for i in range(s.num_layers):
        h = b.rms_norm(x, f"layers.{i}.attn.norm", s.rms_eps, out="h")
        h = self_attention(b, h, config, i)
        h = b.rms_norm(h, f"layers.{i}.attn.post_norm", s.rms_eps, out="h")
        x = b.add(x, h, out="x")
        h = b.rms_norm(x, f"layers.{i}.mlp.norm", s.rms_eps, out="h")
        h = gated_mlp(b, h, config, i)
        h = b.rms_norm(h, f"layers.{i}.mlp.post_norm", s.rms_eps, out="h")
        x = b.add(x, h, out="x")
    return finish(b, x, config)


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    fields = gguf_fields(header, "gemma3")
    sizes = gguf_sizes(header, fields, EMBEDDING[Naming.GGUF])
    local = rope_spec(sizes.head_dim, fields.number("rope.freq_base_swa", 1, 1e12, default=_LOCAL_BASE))
    # The format has no key for query_pre_attn_scalar: it is the head size, but for the 27B model the width per head.
    window = fields.integer("attention.sliding_window", 1, _MAX_WINDOW)
    scalar = sizes.hidden_size // sizes.num_heads if sizes.num_layers == _LAYERS_OF_27B else sizes.head_dim
    return _config(
        model_name(header, "gemma3"),
        sizes,
        ropes=(local, gguf_rope(fields, sizes.head_dim, header.rope_factors)),
        layers=_layers(_gguf_pattern(fields, sizes.num_layers), window),
        attention_scale=scalar**-0.5,
        logit_softcap=fields.number("final_logit_softcapping", 0, 1e6, default=0.0) or None,
        tied=gguf_is_tied(header),
    )


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    fields.accept("hidden_activation", "gelu_pytorch_tanh")
    fields.accept("attn_logit_softcapping")
    for key in ("attention_bias", "use_bidirectional_attention"):
        fields.accept(key, False)
    sizes = hf_sizes(fields)
    return _config(
        model_name(header, "gemma3"),
        sizes,
        ropes=_hf_ropes(fields, sizes.head_dim),
        layers=_layers(_hf_pattern(fields, sizes.num_layers), fields.integer("sliding_window", 1, _MAX_WINDOW)),
        attention_scale=fields.number("query_pre_attn_scalar", 1e-6, 1e6, default=256) ** -0.5,
        logit_softcap=fields.number("final_logit_softcapping", 0, 1e6, default=0.0) or None,
        tied=fields.flag("tie_word_embeddings", default=True),
    )


def _config(
    name: str,
    sizes: Sizes,
    *,
    ropes: tuple[RopeSpec, ...],
    layers: tuple[LayerKind, ...],
    attention_scale: float,
    logit_softcap: float | None,
    tied: bool,
) -> DecoderConfig:
    return DecoderConfig(
        family="gemma3",
        name=name,
        sizes=sizes,
        ropes=ropes,
        layers=layers,
        activation=Activation.GELU_TANH,
        attention_scale=attention_scale,
        logit_softcap=logit_softcap,
        embed_scale=sizes.hidden_size**0.5,
        qk_norm=True,
        tied_embeddings=tied,
    )


def _layers(is_sliding: list[bool], window: int) -> tuple[LayerKind, ...]:
    return tuple(LayerKind(_LOCAL, window) if sliding else LayerKind(_GLOBAL) for sliding in is_sliding)


def _periodic(period: int, layers: int) -> list[bool]:
    return [(i + 1) % period != 0 for i in range(layers)]


def _gguf_pattern(fields: Fields, layers: int) -> list[bool]:
    """`sliding_window_pattern` is a period, or one truth value per layer."""
    key = "attention.sliding_window_pattern"
    if not fields.has(key) or isinstance(fields.values[fields.prefix + key], int):
        return _periodic(fields.integer(key, 1, layers + 1, default=_PERIOD), layers)
    pattern = fields.items(key)
    if len(pattern) != layers or not all(isinstance(p, bool) for p in pattern):
        raise fields.error(key, f"must be a period or {layers} truth values")
    return [bool(p) for p in pattern]


def _hf_pattern(fields: Fields, layers: int) -> list[bool]:
    """`layer_types` names each layer's kind; older files give a period."""
    if not fields.has("layer_types"):
        key = "sliding_window_pattern" if fields.has("sliding_window_pattern") else "_sliding_window_pattern"
        return _periodic(fields.integer(key, 1, 1 << 10, default=_PERIOD), layers)
    kinds = fields.items("layer_types")
    if len(kinds) != layers or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise fields.error("layer_types", f"must name sliding_attention or full_attention for each of {layers} layers")
    return [kind == "sliding_attention" for kind in kinds]


def _hf_ropes(fields: Fields, head_dim: int) -> tuple[RopeSpec, RopeSpec]:
    """Newer files hold one object per kind of layer in `rope_parameters`; older ones scale only the full layers."""
    both = fields.nested("rope_parameters")
    full = both.nested("full_attention") if fields.has("rope_parameters") else fields.nested("rope_scaling")
    local_base = fields.number("rope_local_base_freq", 1, 1e12, default=_LOCAL_BASE)
    global_base = fields.number("rope_theta", 1, 1e12, default=_GLOBAL_BASE)
    return (
        scaled_rope(both.nested("sliding_attention"), head_dim, local_base),
        scaled_rope(full, head_dim, global_base),
    )


def _sources(config: DecoderConfig, naming: Naming) -> dict[str, WeightSource]:
    """Hugging Face files hold every norm weight less one; GGUF files hold what is multiplied."""
    found = decoder_sources(config, naming, _NORMS[naming])
    if naming is Naming.GGUF:
        return found
    return {
        name: replace(source, transform=AddOne()) if name.endswith("norm") else source for name, source in found.items()
    }


def define(header: CheckpointHeader) -> ModelDefinition:
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[header.naming](header)
    return ModelDefinition(build(config), _sources(config, header.naming), redundant_tensors(config, header.naming))


GEMMA3 = Family(
    name="gemma3",
    gguf_architectures=("gemma3",),
    hf_architectures=("Gemma3ForCausalLM",),
    hf_model_types=("gemma3_text",),
    define=define,
)
