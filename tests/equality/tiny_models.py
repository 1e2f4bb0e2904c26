"""Small random models, so chosen that together they take every path of the kernels."""

from pathlib import Path

import numpy as np
import pytest

from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.weights import build_weights
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.execution.quant import TensorType as Q

FAMILIES = {
    "llama": TinyModel(
        tensor_type=Q.Q4_0, embedding_type=Q.Q8_0, hidden=96, heads=9, kv_heads=3, head_dim=64, intermediate=160
    ),
    "qwen2": TinyModel(architecture="qwen2", tensor_type=Q.Q8_0, hidden=128, heads=7, kv_heads=1, head_dim=128),
    "gemma3": TinyModel(
        architecture="gemma3", tensor_type=Q.Q4_1, embedding_type=Q.Q8_0, layers=3, head_dim=256, kv_heads=1, window=24
    ),
}
"""One per family; all settings. Their vocabularies are of both kinds, gemma3's window is shorter than the contexts."""

EVERY_FAMILY = ["llama", pytest.param("qwen2", marks=pytest.mark.long), "gemma3"]
"""But for its biases, qwen2 is a llama; one of the formats below has them."""

FORMATS = {
    "F32, 80 wide heads": TinyModel(tensor_type=Q.F32, heads=5, kv_heads=1, head_dim=80),
    "F16": TinyModel(tensor_type=Q.F16, heads=6, kv_heads=2, head_dim=80, hidden=72, intermediate=200),
    "BF16, 256 wide heads": TinyModel(tensor_type=Q.BF16, heads=3, kv_heads=3, head_dim=256),
    "Q4_0, 80 wide heads": TinyModel(tensor_type=Q.Q4_0, heads=10, kv_heads=2, head_dim=80, layers=1),
    "Q4_1": TinyModel(tensor_type=Q.Q4_1, heads=5, kv_heads=5, head_dim=64),
    "Q5_0": TinyModel(tensor_type=Q.Q5_0, heads=11, kv_heads=1, head_dim=64),
    "Q5_1": TinyModel(tensor_type=Q.Q5_1, heads=4, kv_heads=2, head_dim=128),
    "Q8_0, untied": TinyModel(tensor_type=Q.Q8_0, heads=3, kv_heads=1, head_dim=128, tied=False, vocab_size=520),
    "Q4_K": TinyModel(
        tensor_type=Q.Q4_K, embedding_type=Q.Q6_K, hidden=256, heads=6, kv_heads=2, head_dim=128, intermediate=256
    ),
    "Q5_K": TinyModel(tensor_type=Q.Q5_K, hidden=256, heads=8, kv_heads=2, head_dim=64, intermediate=512),
    "Q6_K": TinyModel(
        architecture="qwen2", tensor_type=Q.Q6_K, hidden=256, heads=12, kv_heads=4, head_dim=64, intermediate=256
    ),
    "Q2_K": TinyModel(tensor_type=Q.Q2_K, hidden=256, heads=4, kv_heads=4, head_dim=64, intermediate=256),
    "Q3_K, IQ4_XS": TinyModel(
        tensor_type=Q.Q3_K, embedding_type=Q.IQ4_XS, hidden=256, heads=4, kv_heads=1, head_dim=128, intermediate=256
    ),
    "IQ4_NL, MXFP4": TinyModel(tensor_type=Q.IQ4_NL, embedding_type=Q.MXFP4, heads=4, kv_heads=1, head_dim=96),
    "gpt2, Q4_0": TinyModel(
        architecture="gpt2",
        tensor_type=Q.Q4_0,
        embedding_type=Q.Q8_0,
        hidden=192,
        heads=3,
        kv_heads=3,
        intermediate=416,
    ),
    "granite, Q4_0": TinyModel(architecture="granite", tensor_type=Q.Q4_0, heads=4, kv_heads=2, head_dim=64),
    "phi3, Q8_0, heads that turn in part": TinyModel(
        architecture="phi3", tensor_type=Q.Q8_0, heads=4, kv_heads=2, head_dim=96, rotary_dim=72
    ),
    "olmo2, Q4_1": TinyModel(architecture="olmo2", tensor_type=Q.Q4_1, heads=6, kv_heads=2, head_dim=64),
    "gemma2, Q5_1": TinyModel(
        architecture="gemma2", tensor_type=Q.Q5_1, heads=4, kv_heads=1, head_dim=64, window=20, layers=4
    ),
    "gemma3, Q6_K": TinyModel(
        architecture="gemma3",
        tensor_type=Q.Q6_K,
        hidden=256,
        heads=5,
        kv_heads=1,
        head_dim=256,
        intermediate=256,
        window=40,
    ),
    "gemma3, BF16, narrow window": TinyModel(
        architecture="gemma3", tensor_type=Q.BF16, heads=4, kv_heads=2, head_dim=64, window=5, window_period=3, layers=4
    ),
}
"""Every tensor type that is computed with as a file stores it, head sizes 64, 80, 96, 128 and 256, heads per KV head
from 1 to 11; and what other families compute: multipliers, heads that turn in part, norms over all heads and behind
blocks, caps of scores and logits."""

EXPERTS = {
    "experts and MLPs": TinyModel(
        architecture="qwen2_moe", tensor_type=Q.Q4_0, embedding_type=Q.Q8_0, hidden=96, heads=6, kv_heads=2,
        head_dim=64, intermediate=160, experts=12, active_experts=3, expert_inner=64, dense_layers=(1,), layers=3,
    ),
    "experts, Q6_K": TinyModel(
        architecture="mixtral", tensor_type=Q.Q6_K, hidden=256, heads=4, kv_heads=2, head_dim=64, intermediate=256
    ),
    "experts, BF16": TinyModel(
        architecture="qwen3_moe", tensor_type=Q.BF16, heads=4, kv_heads=1, head_dim=80, experts=20, active_experts=5
    ),
}  # fmt: skip
"""Models whose tokens meet in other places than the cache."""

POISONABLE = {
    "int8 activations": TinyModel(
        tensor_type=Q.Q4_0, embedding_type=Q.F32, tied=False, heads=6, kv_heads=2, head_dim=64
    ),
    "float activations": TinyModel(
        tensor_type=Q.F16, embedding_type=Q.F32, tied=False, heads=6, kv_heads=2, head_dim=64
    ),
    "experts": TinyModel(
        architecture="mixtral", tensor_type=Q.Q4_0, embedding_type=Q.F32, tied=False, heads=6, kv_heads=2, head_dim=64
    ),
    "windows": TinyModel(
        architecture="gemma3",
        tensor_type=Q.Q4_0,
        embedding_type=Q.F32,
        tied=False,
        heads=4,
        kv_heads=2,
        head_dim=64,
        window=24,
        window_period=3,
        layers=4,
    ),
}
"""Embedding and output matrix apart, so that a token can be poison without spoiling the logits of all."""
POISON = {6: np.inf, 7: np.nan}
"""Token ids whose embedding is no number; `tiny_workload` does not use them."""


def write_poisoned_model(path: Path, model: TinyModel) -> Path:
    """Writes a model in which a few token ids give infinity or NaN."""
    embedding = build_weights(model)["model.embed_tokens.weight"].raw.reshape(model.vocab_size, -1)
    data = write_tiny_model(path, model).read_bytes()
    for token, value in POISON.items():
        row = embedding[token].tobytes()
        assert data.count(row) == 1
        data = data.replace(row, np.full(model.hidden, value, np.float32).tobytes())
    path.write_bytes(data)
    return path
