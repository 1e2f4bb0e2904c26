"""The two blocks of a decoder layer that all families share, and the names of their weights."""

from octavo.model.builder import ProgramBuilder
from octavo.model.config import DecoderConfig
from octavo.model.families.mixture import mixture_mlp
from octavo.model.program import Buffer, Program, Split


def self_attention(b: ProgramBuilder, h: Buffer, config: DecoderConfig, index: int) -> Buffer:
    """Grouped-query attention of normed rows h (Ainslie et al. 2023): projections, rotation, cache, mix, projection.

    With `qk_norm`, q and k are normed before they are rotated.
    """
    s = config.sizes
    w = f"layers.{index}.attn"
    q = b.linear(h, f"{w}.q", s.num_heads * s.head_dim, split=Split.COLUMN, bias=config.qkv_bias, out="q")
    k = b.linear(h, f"{w}.k", s.num_kv_heads * s.head_dim, split=Split.COLUMN, bias=config.qkv_bias, out="k")
    v = b.linear(h, f"{w}.v", s.num_kv_heads * s.head_dim, split=Split.COLUMN, bias=config.qkv_bias, out="v")
    return mix(b, q, k, v, config, index)


def mix(b: ProgramBuilder, q: Buffer, k: Buffer, v: Buffer, config: DecoderConfig, index: int) -> Buffer:
    """What follows the projections of attention: rotation, cache, mix, projection."""
    s, layer = config.sizes, config.layers[index]
    w = f"layers.{index}.attn"
    if config.qk_norm:
        q_groups, k_groups = (1, 1) if config.qk_norm_over_heads else (s.num_heads, s.num_kv_heads)
        q = b.rms_norm(q, f"{w}.q_norm", s.rms_eps, groups=q_groups, out="q")
        k = b.rms_norm(k, f"{w}.k_norm", s.rms_eps, groups=k_groups, out="k")
    q = b.rope(q, s.num_heads, layer.rope)
    k = b.rope(k, s.num_kv_heads, layer.rope)
    cache = b.cache_layer(s.num_kv_heads, s.head_dim, layer.window)
    b.cache_write(k, v, cache)
    mixed = b.attention(
        q, cache, s.num_heads, scale=config.attention_scale, softcap=config.attention_softcap, out="mixed"
    )
    return b.linear(mixed, f"{w}.out", s.hidden_size, split=Split.ROW, bias=config.out_bias, out="h")


def gated_mlp(b: ProgramBuilder, h: Buffer, config: DecoderConfig, index: int) -> Buffer:
    """`down(activation(gate(h)) * up(h))` (Shazeer 2020)."""
    s = config.sizes
    w = f"layers.{index}.mlp"
    bias = config.mlp_bias
    gate = b.linear(h, f"{w}.gate", s.mlp_size, split=Split.COLUMN, bias=bias, out="gate")
    up = b.linear(h, f"{w}.up", s.mlp_size, split=Split.COLUMN, bias=bias, out="up")
    inner = b.gated(gate, up, config.activation, out="gate")
    return b.linear(inner, f"{w}.down", s.hidden_size, split=Split.ROW, bias=bias, out="h")


def added(b: ProgramBuilder, x: Buffer, h: Buffer, config: DecoderConfig) -> Buffer:
    """x with a block's result h added, times the residual scale."""
    if config.residual_scale != 1:
        h = b.scale(h, config.residual_scale, out=h.name)
    return b.add(x, h, out="x")


def mlp(b: ProgramBuilder, h: Buffer, config: DecoderConfig, index: int) -> Buffer:
    """The second block of a layer: one MLP, or a mixture of experts where the layer has one."""
    mixture = config.mixture
    if mixture is not None and mixture.layers[index]:
        return mixture_mlp(b, h, config, mixture, index)
    return gated_mlp(b, h, config, index)


def pre_norm_decoder(config: DecoderConfig) -> Program:
    """The plain decoder of llama and its kin: each block reads a normed copy of x and adds its result to x."""
    s = config.sizes
    b = ProgramBuilder(config.name, config.ropes)
    x = b.embed("embed", s.vocab_size, s.hidden_size, scale=config.embed_scale, out="x")
    for i in range(s.num_layers):
        h = b.rms_norm(x, f"layers.{i}.attn.norm", s.rms_eps, out="h")
        x = added(b, x, self_attention(b, h, config, i), config)
        h = b.rms_norm(x, f"layers.{i}.mlp.norm", s.rms_eps, out="h")
        x = added(b, x, mlp(b, h, config, i), config)
    return finish(b, x, config)


def sandwich_norm_decoder(config: DecoderConfig) -> Program:
    """The decoder of later gemma models: each block's result is normed, too, before it is added to x."""
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


def finish(b: ProgramBuilder, x: Buffer, config: DecoderConfig) -> Program:
    """The final norm and the logits of the wanted rows."""
    s = config.sizes
    hidden = b.rms_norm(b.select_rows(x, out="rows"), "output_norm", s.rms_eps, out="hidden")
    weight = "embed" if config.tied_embeddings else "output"
    logits = b.logits(hidden, weight, s.vocab_size, softcap=config.logit_softcap, out="logits")
    if config.logit_scale != 1:
        logits = b.scale(logits, config.logit_scale, out="logits")
    notes = {"family": config.family, "layers": str(s.num_layers), "heads": f"{s.num_heads} ({s.num_kv_heads} KV)"}
    return b.build({"logits": logits, "hidden": hidden}, s.max_positions, notes)
