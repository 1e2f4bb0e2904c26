"""The random weights of a tiny model, under Hugging Face names and in Hugging Face's order of rows."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.quant import TensorType, dequantize, quantize

_FLOAT_TYPES = (TensorType.F32, TensorType.F16, TensorType.BF16)
_LOGIT_SPREAD = 3.0
"""Standard deviation of the logits: a distribution then has a head and a tail."""
_PLAIN_GAINS = {"self_attn.q_proj": 4.0, "self_attn.o_proj": 2.0}
_GAINS = {
    "llama": _PLAIN_GAINS,
    "qwen2": _PLAIN_GAINS,
    "gemma3": {"self_attn.q_norm": 4.0, "post_attention_layernorm": 6.0, "post_feedforward_layernorm": 3.0},
}
"""Factors that make attention choose and outweigh the token itself: with plain noise it averages, and greedy text soon
repeats one token."""


@dataclass(frozen=True)
class Stored:
    """A tensor in the bytes of its type. Formats that cannot hold these write `values`: both hold the same numbers."""

    type: TensorType
    shape: tuple[int, ...]
    raw: NDArray[np.uint8]

    @property
    def values(self) -> NDArray[np.float32]:
        """The tensor dequantised."""
        return dequantize(self.type, self.raw, self.shape)

    def with_rows(self, order: NDArray[np.intp]) -> Stored:
        """The same matrix with its rows in another order."""
        rows = self.raw.reshape(self.shape[0], -1)
        return Stored(self.type, self.shape, rows[order].reshape(-1))


def build_weights(model: TinyModel) -> dict[str, Stored]:
    """All tensors. Each depends on the seed and its own name alone."""
    weights = {"model.embed_tokens.weight": _embedding(model)}
    for i in range(model.layers):
        weights |= _layer(model, f"model.layers.{i}.")
    weights["model.norm.weight"] = _norm(model, "model.norm.weight", model.hidden, _LOGIT_SPREAD)
    if not model.is_tied:
        weights["lm_head.weight"] = _matrix(model, "lm_head.weight", model.vocab_size, model.hidden, model.table_type)
    return weights


def _layer(model: TinyModel, prefix: str) -> dict[str, Stored]:
    hidden, q, kv, ffn = model.hidden, model.q_width, model.kv_width, model.intermediate
    shapes = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    gains = _GAINS[model.architecture]
    weights = {}
    for part, (rows, k) in shapes.items():
        name = f"{prefix}{part}.weight"
        weights[name] = _matrix(model, name, rows, k, model.tensor_type, gains.get(part, 1.0))
    for part, width in _norm_widths(model).items():
        name = f"{prefix}{part}.weight"
        weights[name] = _norm(model, name, width, gains.get(part, 1.0))
    if model.architecture == "qwen2":
        for part, width in (("q", q), ("k", kv), ("v", kv)):
            name = f"{prefix}self_attn.{part}_proj.bias"
            weights[name] = _vector(model, np.float32(0.3) * _noise(model, name, (width,)))
    return weights


def _norm_widths(model: TinyModel) -> dict[str, int]:
    plain = {"input_layernorm": model.hidden, "post_attention_layernorm": model.hidden}
    if model.architecture != "gemma3":
        return plain
    more = {"pre_feedforward_layernorm": model.hidden, "post_feedforward_layernorm": model.hidden}
    return plain | more | {"self_attn.q_norm": model.key_dim, "self_attn.k_norm": model.key_dim}


def _noise(model: TinyModel, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng([model.seed, zlib.crc32(name.encode())]).standard_normal(shape, dtype=np.float32)


def _matrix(model: TinyModel, name: str, rows: int, k: int, tensor_type: TensorType, gain: float = 1.0) -> Stored:
    return _rounded(tensor_type, _noise(model, name, (rows, k)) * np.float32(gain / np.sqrt(k)))


def _embedding(model: TinyModel) -> Stored:
    """Rows of length 1, as a matrix that also gives logits wants them; gemma3 scales them up when it reads them."""
    return _matrix(model, "model.embed_tokens.weight", model.vocab_size, model.hidden, model.table_type)


def _norm(model: TinyModel, name: str, width: int, centre: float) -> Stored:
    """Factors around `centre`. Gemma's norms multiply by 1 + weight."""
    factors = np.float32(centre) * (1 + np.float32(0.1) * _noise(model, name, (width,)))
    return _vector(model, factors - 1 if model.architecture == "gemma3" else factors)


def _vector(model: TinyModel, values: NDArray[np.float32]) -> Stored:
    return _rounded(model.tensor_type if model.tensor_type in _FLOAT_TYPES else TensorType.F32, values)


def _rounded(tensor_type: TensorType, values: NDArray[np.float32]) -> Stored:
    return Stored(tensor_type, values.shape, quantize(tensor_type, values))
