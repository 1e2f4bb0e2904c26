"""The shape of a model that Octavo does not run, from the keys of its config: grouped-query or latent attention, one
MLP or experts.

Sources of the arithmetic: Ainslie et al. 2023 (grouped queries), DeepSeek-AI 2024 (arXiv:2405.04434, latent attention
and shared experts), Shazeer 2020 (gated MLP).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from octavo.kv.spec import AttentionSpec, LatentSpec
from octavo.model.fields import Fields
from octavo.model.program import Split
from octavo.planning.shape import Layer, Matrix, ModelShape, Pricing

_MOST = 1 << 24
_EXPERT_KEYS = ("n_routed_experts", "num_local_experts", "num_experts")
_ROUTER_WITH_BIAS = "noaux_tc"
"""Experts are picked with a bias that balances their load without a loss."""


@dataclass(frozen=True)
class Traits:
    """What an architecture's name says beside its config."""

    qk_norm: bool = False
    """Norms on each head of q and k."""
    qkv_bias: bool = False
    norms_per_layer: int = 2
    tied_by_default: bool = False
    window_period: int = 0
    """Every so many layers one has no window, where the config does not say which; 0: all have one."""


@cache
def known_traits() -> Mapping[str, Traits]:
    """Architecture, as config.json names it -> its traits."""
    content = json.loads((files("octavo.planning") / "architectures.json").read_text(encoding="utf-8"))
    return {name: Traits(**traits) for name, traits in content.items()}


def shape_of_config(
    fields: Fields, name: str, architecture: str, traits: Traits | None = None, notes: tuple[str, ...] = ()
) -> ModelShape:
    """The shape that a config's keys describe.

    Args:
        traits: None: those of the architecture's name, plain ones with a note if it is unknown.

    Raises:
        ModelFileError: a key is missing or absurd.
    """
    if traits is None:
        traits = known_traits().get(architecture)
    if traits is None:
        notes = (*notes, f"{architecture} is not known: norms and biases are those of a plain decoder")
        traits = Traits()
    hidden = fields.integer("hidden_size", 1, _MOST)
    num_layers = fields.integer("num_hidden_layers", 1, 1024)
    windows = _windows(fields, num_layers, traits.window_period)
    return ModelShape(
        name=name,
        architecture=architecture,
        priced_by=Pricing.FORMULA,
        vocab_size=fields.integer("vocab_size", 1, _MOST),
        hidden_size=hidden,
        max_positions=fields.integer("max_position_embeddings", 1, 1 << 30),
        layers=tuple(_layer(fields, hidden, index, windows[index], traits) for index in range(num_layers)),
        num_final_norm_parameters=hidden,
        tied_embeddings=fields.flag("tie_word_embeddings", default=traits.tied_by_default),
        notes=notes,
    )


def _layer(fields: Fields, hidden: int, index: int, window: int | None, traits: Traits) -> Layer:
    mlp = _experts(fields, hidden) if _has_experts(fields, index) else _mlp(fields, hidden, "intermediate_size")
    norms = traits.norms_per_layer * hidden
    if fields.has("kv_lora_rank"):
        return _latent_layer(fields, hidden, mlp, norms)
    heads = fields.integer("num_attention_heads", 1, 4096)
    kv_heads = fields.integer("num_key_value_heads", 1, heads, default=heads)
    head_dim = fields.integer("head_dim", 1, 1 << 16, default=max(1, hidden // heads))
    bias = fields.flag("attention_bias", default=False)
    qkv_bias = bias or traits.qkv_bias
    return Layer(
        cache=AttentionSpec(num_kv_heads=kv_heads, head_dim=head_dim, window=window),
        num_heads=heads,
        key_dim=head_dim,
        value_dim=head_dim,
        matrices=(
            _column("attn.q", hidden, heads * head_dim, qkv_bias),
            _column("attn.k", hidden, kv_heads * head_dim, qkv_bias),
            _column("attn.v", hidden, kv_heads * head_dim, qkv_bias),
            _row("attn.out", heads * head_dim, hidden, bias),
            *mlp,
        ),
        num_norm_parameters=norms + (2 * head_dim if traits.qk_norm else 0),
    )


def _latent_layer(fields: Fields, hidden: int, mlp: tuple[Matrix, ...], norms: int) -> Layer:
    """Multi-head latent attention: what is small before the heads stands on every rank."""
    heads = fields.integer("num_attention_heads", 1, 4096)
    latent = fields.integer("kv_lora_rank", 1, _MOST)
    rope_dim = fields.integer("qk_rope_head_dim", 1, 1 << 16)
    plain_dim = fields.integer("qk_nope_head_dim", 1, 1 << 16)
    value_dim = fields.integer("v_head_dim", 1, 1 << 16)
    key_dim = plain_dim + rope_dim
    query: tuple[Matrix, ...] = (_column("attn.q", hidden, heads * key_dim),)
    if fields.has("q_lora_rank"):
        query_latent = fields.integer("q_lora_rank", 1, _MOST)
        query = (_whole("attn.q_down", hidden, query_latent), _column("attn.q_up", query_latent, heads * key_dim))
        norms += query_latent
    return Layer(
        cache=LatentSpec(latent_dim=latent, rope_dim=rope_dim),
        num_heads=heads,
        key_dim=key_dim,
        value_dim=value_dim,
        matrices=(
            *query,
            _whole("attn.kv_down", hidden, latent + rope_dim),
            _column("attn.kv_up", latent, heads * (plain_dim + value_dim)),
            _row("attn.out", heads * value_dim, hidden),
            *mlp,
        ),
        num_norm_parameters=norms + latent,
    )


def _has_experts(fields: Fields, index: int) -> bool:
    """Not before `first_k_dense_replace`, not in `mlp_only_layers`, and only in every so many layers."""
    if not any(fields.has(key) for key in _EXPERT_KEYS):
        return False
    step_key = "moe_layer_freq" if fields.has("moe_layer_freq") else "decoder_sparse_step"
    step = fields.integer(step_key, 1, 1024, default=1)
    dense = fields.items("mlp_only_layers") if fields.has("mlp_only_layers") else []
    first = fields.integer("first_k_dense_replace", 0, 1024, default=0)
    offset = 1 if step_key == "decoder_sparse_step" else 0
    return index >= first and index not in dense and (index + offset) % step == 0


def _experts(fields: Fields, hidden: int) -> tuple[Matrix, ...]:
    key = next(key for key in _EXPERT_KEYS if fields.has(key))
    num_experts = fields.integer(key, 1, 1 << 16)
    num_active = fields.integer("num_experts_per_tok", 1, num_experts)
    width_key = "moe_intermediate_size" if fields.has("moe_intermediate_size") else "intermediate_size"
    has_bias = fields.text("topk_method", default="greedy") == _ROUTER_WITH_BIAS
    router = Matrix(name="mlp.router", inputs=hidden, outputs=num_experts, split=Split.REPLICATED, has_bias=has_bias)
    routed = _mlp(fields, hidden, width_key, num_experts=num_experts, num_active=num_active)
    return (router, *routed, *_shared_experts(fields, hidden, width_key))


def _shared_experts(fields: Fields, hidden: int, width_key: str) -> tuple[Matrix, ...]:
    """Every token meets them."""
    count = fields.integer("n_shared_experts", 0, 1024, default=0)
    return _mlp(fields, hidden, width_key, num_experts=count, num_active=count) if count else ()


def _mlp(
    fields: Fields, hidden: int, width_key: str, *, num_experts: int = 1, num_active: int = 1
) -> tuple[Matrix, ...]:
    width = fields.integer(width_key, 1, _MOST)
    one = (_column("mlp.gate", hidden, width), _column("mlp.up", hidden, width), _row("mlp.down", width, hidden))
    return tuple(replace(matrix, num_experts=num_experts, num_active=num_active) for matrix in one)


def _windows(fields: Fields, num_layers: int, period: int) -> list[int | None]:
    """Of each layer: `layer_types` says which have one, else the architecture does."""
    used = fields.has("sliding_window") and fields.flag("use_sliding_window", default=True)
    if not used:
        return [None] * num_layers
    window = fields.integer("sliding_window", 1, 1 << 30)
    if not fields.has("layer_types"):
        return [window if period == 0 or (layer + 1) % period else None for layer in range(num_layers)]
    kinds = fields.items("layer_types")
    if len(kinds) != num_layers:
        raise fields.error("layer_types", f"must name a kind for each of {num_layers} layers")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _column(name: str, inputs: int, outputs: int, has_bias: bool = False) -> Matrix:
    return Matrix(name=name, inputs=inputs, outputs=outputs, split=Split.COLUMN, has_bias=has_bias)


def _row(name: str, inputs: int, outputs: int, has_bias: bool = False) -> Matrix:
    return Matrix(name=name, inputs=inputs, outputs=outputs, split=Split.ROW, has_bias=has_bias)


def _whole(name: str, inputs: int, outputs: int) -> Matrix:
    return Matrix(name=name, inputs=inputs, outputs=outputs, split=Split.REPLICATED)
