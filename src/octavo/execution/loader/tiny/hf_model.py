"""A tiny model as a Hugging Face folder: config.json, tokenizer.json, safetensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.execution.loader.safetensors_writer import SafeTensor, write_safetensors
from octavo.execution.loader.tiny.factors import FACTORS
from octavo.execution.loader.tiny.mixture import hf_keys
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.stored import Stored
from octavo.execution.loader.tiny.tokenizer_json import tokenizer_config, tokenizer_json
from octavo.execution.loader.tiny.vocabulary import Vocabulary
from octavo.execution.quant import TensorType, quantize

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "granite": "GraniteForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
_MODEL_TYPES = {"gemma3": "gemma3_text"}
"""Where it is not the architecture's name."""
_CONV1D = re.compile(r"transformer\.h\.\d+\.(attn|mlp)\.c_\w+\.weight")
_TORCH_DTYPES = {TensorType.F32: "float32", TensorType.F16: "float16", TensorType.BF16: "bfloat16"}
"""Also the types that safetensors can hold; others are written as F32 of the same numbers."""


def write_hf_model(
    folder: Path, model: TinyModel, vocabulary: Vocabulary, weights: Mapping[str, Stored], shards: int
) -> Path:
    """Writes the folder and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": _config(model, vocabulary),
        "generation_config.json": _generation_config(vocabulary),
        "tokenizer.json": tokenizer_json(model, vocabulary),
        "tokenizer_config.json": tokenizer_config(vocabulary),
    }
    for name, document in documents.items():
        _write_json(folder / name, document)
    stored = {name: _turned(name, _storable(tensor)) for name, tensor in weights.items()}
    if shards == 1:
        _write_safetensors(folder / "model.safetensors", stored)
    else:
        _write_shards(folder, stored, shards)
    return folder


def _write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Tensors must be of a float type."""
    items = tensors.items()
    write_safetensors(path, [SafeTensor(name, t.type.name, t.shape, [t.raw]) for name, t in items])


def _write_shards(folder: Path, tensors: Mapping[str, Stored], shards: int) -> None:
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for n in range(shards):
        file_name = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        share = names[n * len(names) // shards : (n + 1) * len(names) // shards]
        _write_safetensors(folder / file_name, {name: tensors[name] for name in share})
        weight_map |= dict.fromkeys(share, file_name)
    total = sum(tensor.raw.nbytes for tensor in tensors.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def _storable(stored: Stored) -> Stored:
    if stored.type in _TORCH_DTYPES:
        return stored
    return Stored(TensorType.F32, stored.shape, quantize(TensorType.F32, stored.values))


def _turned(name: str, stored: Stored) -> Stored:
    """Conv1D, which gpt2 is made of, holds its matrix as `[in, out]`."""
    if _CONV1D.fullmatch(name) is None:
        return stored
    return Stored(stored.type, stored.shape[::-1], quantize(stored.type, np.ascontiguousarray(stored.values.T)))


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _config(model: TinyModel, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "architectures": [_CLASSES[model.architecture]],
        "model_type": _MODEL_TYPES.get(model.architecture, model.architecture),
        "torch_dtype": _TORCH_DTYPES.get(model.tensor_type, "float32"),
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.is_tied,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": _end_ids(vocabulary),
        "pad_token_id": vocabulary.pad,
        **(_gpt2_config(model) if model.architecture == "gpt2" else _llama_config(model)),
    }


def _gpt2_config(model: TinyModel) -> dict[str, Any]:
    return {
        "n_embd": model.hidden,
        "n_inner": model.intermediate,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_positions": model.context_length,
        "layer_norm_epsilon": model.norm_epsilon,
        "activation_function": "gelu_new",
    }


def _llama_config(model: TinyModel) -> dict[str, Any]:
    return {
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.key_dim,
        "max_position_embeddings": model.context_length,
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rope_theta,
        "attention_dropout": 0.0,
        **(_gemma_config(model) if model.kin == "gemma3" else {"hidden_act": "silu"}),
        **({"use_sliding_window": False} if model.kin == "qwen2" else {}),
        **({"partial_rotary_factor": model.turning_dim / model.key_dim} if model.architecture == "phi3" else {}),
        **{key.hf: value for key, value in FACTORS.get(model.architecture, {}).items()},
        **hf_keys(model),
    }


def _gemma_config(model: TinyModel) -> dict[str, Any]:
    own = {
        "rope_local_base_freq": 10_000.0,
        "rope_scaling": None,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    }
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": model.key_dim,
        "sliding_window": model.window,
        "layer_types": ["sliding_attention" if sliding else "full_attention" for sliding in model.sliding_layers],
        "attention_bias": False,
        **(own if model.architecture == "gemma3" else {}),
    }


def _end_ids(vocabulary: Vocabulary) -> Sequence[int] | int:
    ids = sorted({vocabulary.eos, vocabulary.end_of_turn})
    return ids if len(ids) > 1 else ids[0]


def _generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "bos_token_id": vocabulary.bos,
        "eos_token_id": _end_ids(vocabulary),
        "pad_token_id": vocabulary.pad,
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.9,
    }
