"""A tiny model as llama.cpp's converter would write it: its metadata keys, tensor names and row order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from octavo.execution.loader.gguf_writer import FILE_TYPES, GGUFTensor, Value, write_gguf, write_split_gguf
from octavo.execution.loader.tiny.factors import FACTORS
from octavo.execution.loader.tiny.mixture import GGUF_PARTS, gguf_numbers, is_router, stacked
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.stored import Stored
from octavo.execution.loader.tiny.vocabulary import Vocabulary
from octavo.execution.quant import TensorType, quantize

_PRE_TOKENIZERS = {"llama": "smollm", "qwen2": "qwen2", "gemma3": "default", "gpt2": "gpt-2"}
_WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    **GGUF_PARTS,
}
_PRE_NORMS = {"post_attention_layernorm": "ffn_norm"}
_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_NORMS = dict.fromkeys(("olmo2", "gemma2", "gemma3"), _POST_NORMS)
"""Others have `_PRE_NORMS`."""
_ARCHITECTURES = {"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
"""Where GGUF has another name."""
_NAME = re.compile(r"(model\.layers|transformer\.h)\.(?P<layer>\d+)\.(?P<part>.+)")


def write_gguf_model(
    path: Path, model: TinyModel, vocabulary: Vocabulary, weights: Mapping[str, Stored], shards: int
) -> Path:
    """Writes the file, or its parts; returns the first."""
    metadata = {**_model_metadata(model), **_tokenizer_metadata(model, vocabulary)}
    tensors = [_tensor(model, name, stored) for name, stored in stacked(weights).items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    if shards > 1:
        return write_split_gguf(path, metadata, tensors, shards)[0]
    write_gguf(path, metadata, tensors)
    return path


def _model_metadata(model: TinyModel) -> dict[str, Value]:
    arch = _ARCHITECTURES.get(model.architecture, model.architecture)
    numbers = {
        "block_count": model.layers,
        "context_length": model.context_length,
        "embedding_length": model.hidden,
        "feed_forward_length": model.intermediate,
        "attention.head_count": model.heads,
        **_architecture_numbers(model),
        **gguf_numbers(model),
    }
    return {
        "general.architecture": Value("str", arch),
        "general.type": Value("str", "model"),
        "general.name": Value("str", f"Tiny random {model.architecture}"),
        "general.file_type": Value("u32", FILE_TYPES[model.tensor_type.name]),
        "general.quantization_version": Value("u32", 2),
        **{f"{arch}.{key}": Value("u32", number) for key, number in numbers.items()},
        **{f"{arch}.{key}": Value("f32", number) for key, number in _architecture_floats(model).items()},
    }


def _architecture_floats(model: TinyModel) -> dict[str, float]:
    if model.architecture == "gpt2":
        return {"attention.layer_norm_epsilon": model.norm_epsilon}
    floats = {"attention.layer_norm_rms_epsilon": model.norm_epsilon, "rope.freq_base": model.rope_theta}
    return floats | {key.gguf: value for key, value in FACTORS.get(model.architecture, {}).items()}


def _architecture_numbers(model: TinyModel) -> dict[str, int]:
    if model.architecture == "gpt2":
        return {}
    return {"attention.head_count_kv": model.kv_heads, **_rotary_numbers(model)}


def _rotary_numbers(model: TinyModel) -> dict[str, int]:
    heads = {"attention.key_length": model.key_dim, "attention.value_length": model.key_dim}
    if model.kin == "gemma3":
        usual = {"gemma2": 2, "gemma3": 6}[model.architecture]
        pattern = {} if model.window_period == usual else {"attention.sliding_window_pattern": model.window_period}
        return heads | {"attention.sliding_window": model.window} | pattern
    unusual = heads if model.q_width != model.hidden else {}
    if model.kin == "llama":
        return unusual | {"vocab_size": model.vocab_size, "rope.dimension_count": model.turning_dim}
    return unusual


def _tokenizer_metadata(model: TinyModel, vocabulary: Vocabulary) -> dict[str, Value]:
    is_bpe = vocabulary.kind == "bpe"
    fields = {
        "model": Value("str", "gpt2" if is_bpe else "llama"),
        "pre": Value("str", _PRE_TOKENIZERS[model.kin] if is_bpe else "default"),
        "tokens": Value("[str]", vocabulary.tokens),
        "token_type": Value("[i32]", vocabulary.types),
        "bos_token_id": Value("u32", vocabulary.bos),
        "eos_token_id": Value("u32", vocabulary.eos),
        "padding_token_id": Value("u32", vocabulary.pad),
        "add_bos_token": Value("bool", vocabulary.add_bos),
        "add_space_prefix": Value("bool", vocabulary.add_space_prefix),
    }
    if is_bpe:
        fields["merges"] = Value("[str]", [f"{left} {right}" for left, right in vocabulary.merges])
    else:
        fields["scores"] = Value("[f32]", vocabulary.scores)
    if vocabulary.unknown is not None:
        fields["unknown_token_id"] = Value("u32", vocabulary.unknown)
    if vocabulary.end_of_turn != vocabulary.eos:
        fields["eot_token_id"] = Value("u32", vocabulary.end_of_turn)
    metadata = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    if vocabulary.chat_template is not None:
        metadata["tokenizer.chat_template"] = Value("str", vocabulary.chat_template)
    return metadata


def _tensor(model: TinyModel, name: str, stored: Stored) -> GGUFTensor:
    stored = _converted(model, name, stored)
    return GGUFTensor(_gguf_name(model, name), stored.type, stored.shape, [stored.raw])


def _gguf_name(model: TinyModel, name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    match = _NAME.fullmatch(stem)
    if match is None:
        return f"{_WHOLE[stem]}.{suffix}"
    part = (_PARTS | _NORMS.get(model.architecture, _PRE_NORMS))[match["part"]]
    return f"blk.{match['layer']}.{part}.{suffix}"


def _part(name: str) -> str:
    """Of a layer; empty for tensors of none."""
    match = _NAME.fullmatch(name.rpartition(".")[0])
    return "" if match is None else match["part"]


def _converted(model: TinyModel, name: str, stored: Stored) -> Stored:
    """Norms, biases and routers as F32, Gemma's norms with their 1 added, q and k rows in rotary pairs where files have
    them so."""
    if is_router(_part(name)):
        return Stored(TensorType.F32, stored.shape, quantize(TensorType.F32, stored.values))
    if len(stored.shape) == 1:
        one = np.float32(1) if model.kin == "gemma3" and "norm" in name else np.float32(0)
        return Stored(TensorType.F32, stored.shape, quantize(TensorType.F32, stored.values + one))
    if model.has_paired_rows and name.endswith(("q_proj.weight", "k_proj.weight")):
        return stored.with_rows(_paired_rows(stored.shape[0], model.key_dim))
    return stored


def _paired_rows(num_rows: int, head_dim: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Order in which GGUF stores llama's q and k rows: (0, d/2, 1, d/2 + 1, ...) of each head, where Hugging Face has
    the two halves one after the other."""
    rows = np.arange(num_rows, dtype=np.intp).reshape(-1, 2, head_dim // 2)
    return rows.swapaxes(1, 2).reshape(num_rows)
