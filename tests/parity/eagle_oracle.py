"""EAGLE and EAGLE-3 heads in torch, straight from their papers' formulas: one sequence at a time, without any cache."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, silu, softmax

Tensors = Mapping[str, Tensor]


def eagle(
    t: Tensors, config: Mapping[str, Any], embedding: Tensor, output: Tensor, token_ids: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """
    Args:
        token_ids: `[n]`, each the token behind the one whose hidden state stands in its row.
        hidden: `[n, width]`

    Returns:
        The next hidden states `[n, width]`, and logits.
    """
    x = linear(torch.cat((embedding[token_ids], hidden), dim=-1), t["fc.weight"], t.get("fc.bias"))
    for i in range(config["num_hidden_layers"]):
        prefix = f"layers.{i}."
        normed = x if i == 0 else _norm(x, t[f"{prefix}input_layernorm.weight"], config)
        x = x + _attention(t, prefix, config, normed)
        x = x + _mlp(t, prefix, _norm(x, t[f"{prefix}post_attention_layernorm.weight"], config))
    return x, linear(x, output)


def eagle3(
    t: Tensors, config: Mapping[str, Any], embedding: Tensor, output: Tensor, token_ids: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """As `eagle`; `hidden` has been through fc, or is what an earlier call returned."""
    prefix = "midlayer." if "midlayer.hidden_norm.weight" in t else "layers.0."
    normed = _norm(hidden, t[f"{prefix}hidden_norm.weight"], config)
    e = _norm(embedding[token_ids], t[f"{prefix}input_layernorm.weight"], config)
    x = normed if config.get("norm_before_residual") else hidden
    x = x + _attention(t, prefix, config, torch.cat((e, normed), dim=-1))
    x = x + _mlp(t, prefix, _norm(x, t[f"{prefix}post_attention_layernorm.weight"], config))
    return x, linear(_norm(x, t["norm.weight"], config), output)


def fused(t: Tensors, layers: list[Tensor]) -> Tensor:
    """EAGLE-3's features from hidden states `[n, width]` of the target, one per tapped layer."""
    return linear(torch.cat(layers, dim=-1), t["fc.weight"], t.get("fc.bias"))


def _norm(x: Tensor, weight: Tensor, config: Mapping[str, Any]) -> Tensor:
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"])


def _mlp(t: Tensors, prefix: str, x: Tensor) -> Tensor:
    gate, up, down = (t[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
    return linear(silu(linear(x, gate)) * linear(x, up), down)


def _attention(t: Tensors, prefix: str, config: Mapping[str, Any], x: Tensor) -> Tensor:
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["hidden_size"] // heads

    def project(part: str, count: int) -> Tensor:
        name = f"{prefix}self_attn.{part}_proj."
        return linear(x, t[f"{name}weight"], t.get(f"{name}bias")).view(len(x), count, head_dim).transpose(0, 1)

    q, k, v = _rotated(project("q", heads)), _rotated(project("k", kv_heads)), project("v", kv_heads)
    k, v = (y.repeat_interleave(heads // kv_heads, dim=0) for y in (k, v))
    scores = q @ k.transpose(1, 2) / head_dim**0.5
    future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    mixed = softmax(scores.masked_fill(future, -torch.inf), dim=-1) @ v
    return linear(mixed.transpose(0, 1).reshape(len(x), -1), t[f"{prefix}self_attn.o_proj.weight"])


def _rotated(x: Tensor) -> Tensor:
    """x `[heads, n, head_dim]` turned by its positions 0 .. n - 1."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
