"""The random weights of a tiny model, under Hugging Face names and in Hugging Face's order of rows."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from octavo.execution.loader.tiny.mixture import is_router, mixture_shapes
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.stored import Stored
from octavo.execution.quant import TensorType, quantize

_FLOAT_TYPES = (TensorType.F32, TensorType.F16, TensorType.BF16)
Gains = NDArray[np.float32]
"""Factors of the rows of a matrix, `[rows, 1]`."""
_LOGIT_SPREAD = 3.0
"""Standard deviation of the logits: a distribution then has a head and a tail."""
_ROUTER_GAIN = 2.0
"""Makes a row's experts differ in weight."""
_QUERY_GAIN = 4.0
_PLAIN_GAINS = {"self_attn.q_proj": _QUERY_GAIN, "self_attn.o_proj": 2.0}
_GEMMA_GAINS = {"post_attention_layernorm": 6.0, "post_feedforward_layernorm": 3.0}
_GAINS = {
    "olmo2": {"self_attn.q_norm": _QUERY_GAIN},
    "gemma2": {"self_attn.q_proj": _QUERY_GAIN, **_GEMMA_GAINS},
    "gemma3": {"self_attn.q_norm": _QUERY_GAIN, **_GEMMA_GAINS},
}
"""Others have `_PLAIN_GAINS`. Factors that make attention choose and outweigh the token itself: with plain noise it
averages, and greedy text soon repeats one token."""
_PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
_POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
_SANDWICH_NORMS = ("input_layernorm", "pre_feedforward_layernorm", *_POST_NORMS)
_NORMS = {"olmo2": _POST_NORMS, "gemma2": _SANDWICH_NORMS, "gemma3": _SANDWICH_NORMS}
"""Norms of a layer in rows of the hidden width; others have `_PRE_NORMS`."""


def build_weights(model: TinyModel) -> dict[str, Stored]:
    """All tensors. Each depends on the seed and its own name alone. Matrices are `[out, in]`, whatever the format."""
    if model.architecture == "gpt2":
        return _gpt2(model)
    weights = {"model.embed_tokens.weight": _table(model, "model.embed_tokens.weight", model.vocab_size)}
    for i in range(model.layers):
        weights |= _layer(model, i)
    weights["model.norm.weight"] = _norm(model, "model.norm.weight", model.hidden, _LOGIT_SPREAD)
    if not model.is_tied:
        weights["lm_head.weight"] = _table(model, "lm_head.weight", model.vocab_size)
    return weights


def _layer(model: TinyModel, index: int) -> dict[str, Stored]:
    prefix, hidden, q, kv = f"model.layers.{index}.", model.hidden, model.q_width, model.kv_width
    shapes = {
        **_qkv_shapes(model),
        "self_attn.o_proj": (hidden, q),
        **(mixture_shapes(model) if model.has_experts and index not in model.dense_layers else _mlp_shapes(model)),
    }
    gains = _GAINS.get(model.architecture, _PLAIN_GAINS)
    of_matrices: dict[str, float | Gains] = {**gains, "self_attn.qkv_proj": _fused_gains(model)}
    weights = {}
    for part, (rows, k) in shapes.items():
        name = f"{prefix}{part}.weight"
        tensor_type, gain = (_float_type(model), _ROUTER_GAIN) if is_router(part) else (model.tensor_type, 1.0)
        weights[name] = _matrix(model, name, rows, k, tensor_type, of_matrices.get(part, gain))
    for part, width in _norm_widths(model).items():
        name = f"{prefix}{part}.weight"
        weights[name] = _norm(model, name, width, gains.get(part, 1.0))
    if model.has_qkv_bias:
        for part, width in (("q", q), ("k", kv), ("v", kv)):
            name = f"{prefix}self_attn.{part}_proj.bias"
            weights[name] = _bias(model, name, width)
    return weights


def _gpt2(model: TinyModel) -> dict[str, Stored]:
    """Queries have a gain; see `_GAINS`."""
    hidden, ffn = model.hidden, model.intermediate
    norms = {"transformer.ln_f": _LOGIT_SPREAD}
    matrices: dict[str, tuple[int, int, float | Gains]] = {}
    for i in range(model.layers):
        prefix = f"transformer.h.{i}."
        norms |= {f"{prefix}ln_1": 1.0, f"{prefix}ln_2": 1.0}
        matrices |= {f"{prefix}attn.c_attn": (3 * hidden, hidden, _fused_gains(model))}
        matrices |= {f"{prefix}attn.c_proj": (hidden, hidden, 2.0)}
        matrices |= {f"{prefix}mlp.c_fc": (ffn, hidden, 1.0), f"{prefix}mlp.c_proj": (hidden, ffn, 1.0)}
    weights = {"transformer.wte.weight": _table(model, "transformer.wte.weight", model.vocab_size)}
    weights |= {"transformer.wpe.weight": _positions(model)}
    for name, centre in norms.items():
        weights[f"{name}.weight"] = _norm(model, f"{name}.weight", hidden, centre)
        weights[f"{name}.bias"] = _bias(model, f"{name}.bias", hidden)
    for name, (rows, k, gain) in matrices.items():
        weights[f"{name}.weight"] = _matrix(model, f"{name}.weight", rows, k, model.tensor_type, gain)
        weights[f"{name}.bias"] = _bias(model, f"{name}.bias", rows)
    if not model.is_tied:
        weights["lm_head.weight"] = _table(model, "lm_head.weight", model.vocab_size)
    return weights


def _positions(model: TinyModel) -> Stored:
    """A float table, as converters leave it."""
    shape = (model.context_length, model.hidden)
    return _vector(model, _noise(model, "transformer.wpe.weight", shape) / np.float32(np.sqrt(model.hidden)))


def _bias(model: TinyModel, name: str, width: int) -> Stored:
    return _vector(model, np.float32(0.3) * _noise(model, name, (width,)))


def _fused_gains(model: TinyModel) -> Gains:
    """Of the rows of q above k above v."""
    rows = [model.q_width, model.kv_width, model.kv_width]
    return np.repeat(np.array([_QUERY_GAIN, 1, 1], np.float32), rows)[:, None]


def _qkv_shapes(model: TinyModel) -> dict[str, tuple[int, int]]:
    hidden, q, kv = model.hidden, model.q_width, model.kv_width
    if model.has_fused_matrices:
        return {"self_attn.qkv_proj": (q + 2 * kv, hidden)}
    return {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden)}


def _mlp_shapes(model: TinyModel) -> dict[str, tuple[int, int]]:
    hidden, inner = model.hidden, model.intermediate
    if model.has_fused_matrices:
        return {"mlp.gate_up_proj": (2 * inner, hidden), "mlp.down_proj": (hidden, inner)}
    return {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}


def _norm_widths(model: TinyModel) -> dict[str, int]:
    """olmo2 norms q and k over all heads together, the others each head."""
    norms = dict.fromkeys(_NORMS.get(model.architecture, _PRE_NORMS), model.hidden)
    together = model.architecture == "olmo2"
    q, k = (model.q_width, model.kv_width) if together else (model.key_dim, model.key_dim)
    return norms | ({"self_attn.q_norm": q, "self_attn.k_norm": k} if model.has_qk_norm else {})


def _noise(model: TinyModel, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng([model.seed, zlib.crc32(name.encode())]).standard_normal(shape, dtype=np.float32)


def _matrix(
    model: TinyModel,
    name: str,
    rows: int,
    k: int,
    tensor_type: TensorType,
    gain: float | Gains = 1.0,
) -> Stored:
    return _rounded(tensor_type, _noise(model, name, (rows, k)) * np.float32(gain / np.sqrt(k)))


def _table(model: TinyModel, name: str, rows: int) -> Stored:
    """Rows of length 1, as a matrix that also gives logits wants them; gemma scales them up when it reads them."""
    return _matrix(model, name, rows, model.hidden, model.table_type)


def _norm(model: TinyModel, name: str, width: int, centre: float) -> Stored:
    """Factors around `centre`. Gemma's norms multiply by 1 + weight."""
    factors = np.float32(centre) * (1 + np.float32(0.1) * _noise(model, name, (width,)))
    return _vector(model, factors - 1 if model.kin == "gemma3" else factors)


def _vector(model: TinyModel, values: NDArray[np.float32]) -> Stored:
    return _rounded(_float_type(model), values)


def _float_type(model: TinyModel) -> TensorType:
    return model.tensor_type if model.tensor_type in _FLOAT_TYPES else TensorType.F32


def _rounded(tensor_type: TensorType, values: NDArray[np.float32]) -> Stored:
    return Stored(tensor_type, values.shape, quantize(tensor_type, values))
