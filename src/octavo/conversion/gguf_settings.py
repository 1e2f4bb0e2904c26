"""config.json in GGUF's keys. What GGUF cannot say is not looked for here: the program that the written keys define is
compared with that of the folder, and a difference refuses the conversion."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from octavo.errors import UnsupportedModelError
from octavo.execution.loader.gguf_writer import Value
from octavo.model.program import Program, RopeSpec

ARCHITECTURES: Mapping[str, str] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Phi3ForCausalLM": "phi3",
    "GraniteForCausalLM": "granite",
    "Olmo2ForCausalLM": "olmo2",
    "GPT2LMHeadModel": "gpt2",
}
"""Class in config.json -> GGUF's name of the architecture."""

_KEYS: Mapping[str, tuple[str, str]] = {
    "num_hidden_layers": ("u32", "block_count"),
    "max_position_embeddings": ("u32", "context_length"),
    "hidden_size": ("u32", "embedding_length"),
    "intermediate_size": ("u32", "feed_forward_length"),
    "num_attention_heads": ("u32", "attention.head_count"),
    "num_key_value_heads": ("u32", "attention.head_count_kv"),
    "rms_norm_eps": ("f32", "attention.layer_norm_rms_epsilon"),
    "attn_logit_softcapping": ("f32", "attn_logit_softcapping"),
    "final_logit_softcapping": ("f32", "final_logit_softcapping"),
    "embedding_multiplier": ("f32", "embedding_scale"),
    "attention_multiplier": ("f32", "attention.scale"),
    "residual_multiplier": ("f32", "residual_scale"),
    "logits_scaling": ("f32", "logit_scale"),
    "num_local_experts": ("u32", "expert_count"),
    "num_experts": ("u32", "expert_count"),
    "num_experts_per_tok": ("u32", "expert_used_count"),
    "moe_intermediate_size": ("u32", "expert_feed_forward_length"),
    "norm_topk_prob": ("bool", "expert_weights_norm"),
    "shared_expert_intermediate_size": ("u32", "expert_shared_feed_forward_length"),
}
"""Key in config.json -> type and key in GGUF, behind the architecture's name."""

_GPT2_KEYS: Mapping[str, tuple[str, str]] = {
    "n_layer": ("u32", "block_count"),
    "n_positions": ("u32", "context_length"),
    "n_embd": ("u32", "embedding_length"),
    "n_inner": ("u32", "feed_forward_length"),
    "n_head": ("u32", "attention.head_count"),
    "layer_norm_epsilon": ("f32", "attention.layer_norm_epsilon"),
}

_GPT2_MLP = 4
"""Width of GPT-2's inner layer, in widths of the model, where config.json says nothing."""
_DEFAULT_BASES = {"gemma3": 1e6}
_DEFAULT_BASE = 1e4
_NO_SCALING = ("default", None)
_SCALINGS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "linear": {"factor": ("f32", "factor")},
    "yarn": {
        "factor": ("f32", "factor"),
        "original_max_position_embeddings": ("u32", "original_context_length"),
        "beta_fast": ("f32", "yarn_beta_fast"),
        "beta_slow": ("f32", "yarn_beta_slow"),
    },
}
"""Scaling -> key in config.json -> type and key in GGUF, behind `rope.scaling.`."""
_BY_TENSOR = ("llama3",)
"""Scalings that GGUF keeps as a tensor of divisors."""


def architecture_of(path: str, config: Mapping[str, Any]) -> str:
    """GGUF's name of a folder's architecture.

    Raises:
        UnsupportedModelError: it is not one that Octavo writes.
    """
    listed = config.get("architectures")
    name = str(listed[0]) if isinstance(listed, list | tuple) and listed else ""
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{path}: config.json: architectures={listed!r}: Octavo writes GGUF files of {', '.join(ARCHITECTURES)};"
            " quantise this model while it loads (--quantization), or write --format safetensors"
        )
    return ARCHITECTURES[name]


def model_settings(architecture: str, config: Mapping[str, Any], program: Program) -> dict[str, Value]:
    """The keys of the architecture."""
    keys = _GPT2_KEYS if architecture == "gpt2" else _KEYS
    found = {key: Value(kind, config[name]) for name, (kind, key) in keys.items() if config.get(name) is not None}
    if architecture == "gpt2":
        found.setdefault("feed_forward_length", Value("u32", _GPT2_MLP * config["n_embd"]))
    found |= _heads(program) | _windows(architecture, config, program) | _rotation(architecture, config, program)
    return {f"{architecture}.{key}": value for key, value in found.items()}


def _heads(program: Program) -> dict[str, Value]:
    head_dim = program.cache_layers[0].head_dim
    rotary = {"rope.dimension_count": Value("u32", program.ropes[0].rotary_dim)} if program.ropes else {}
    return {
        "attention.key_length": Value("u32", head_dim),
        "attention.value_length": Value("u32", head_dim),
        "vocab_size": Value("u32", program.vocab_size),
        **rotary,
    }


def _windows(architecture: str, config: Mapping[str, Any], program: Program) -> dict[str, Value]:
    windows = [layer.window for layer in program.cache_layers]
    if not any(windows):
        return {}
    found = {
        "attention.sliding_window": Value("u32", next(window for window in windows if window)),
        "attention.sliding_window_pattern": Value("[bool]", [window is not None for window in windows]),
    }
    if architecture == "gemma3":
        found["rope.freq_base_swa"] = Value("f32", _local_base(config))
    return found


def _local_base(config: Mapping[str, Any]) -> float:
    parameters = config.get("rope_parameters") or {}
    local = parameters.get("sliding_attention") or {}
    return float(local.get("rope_theta") or config.get("rope_local_base_freq") or _DEFAULT_BASE)


def _scaling(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that says how positions turn the layers that see everything."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return parameters.get("full_attention") or parameters


def rotary_base(architecture: str, config: Mapping[str, Any]) -> float:
    """The base of the rotation of the layers that see everything."""
    default = _DEFAULT_BASES.get(architecture, _DEFAULT_BASE)
    return float(_scaling(config).get("rope_theta") or config.get("rope_theta") or default)


def _rotation(architecture: str, config: Mapping[str, Any], program: Program) -> dict[str, Value]:
    """
    Raises:
        UnsupportedModelError: a scaling for which no keys are written.
    """
    if not program.ropes:
        return {}
    base = {"rope.freq_base": Value("f32", rotary_base(architecture, config))}
    kind = _kind(config)
    if kind in _NO_SCALING or kind in _BY_TENSOR:
        return base
    if kind in _SCALINGS:
        found = {key: Value(of, v) for name, (of, key) in _SCALINGS[kind].items() if (v := _scaling(config).get(name))}
        return base | {f"rope.scaling.{key}": value for key, value in {"type": Value("str", kind), **found}.items()}
    raise UnsupportedModelError(
        f"config.json: rope_type={kind!r}: Octavo writes GGUF files with the scalings default, linear, llama3 and"
        " yarn;"
        " quantise this model while it loads (--quantization), or write --format safetensors"
    )


def _kind(config: Mapping[str, Any]) -> str | None:
    scaling = _scaling(config)
    kind: str | None = scaling.get("rope_type", scaling.get("type"))
    return kind


def rotary_divisors(architecture: str, config: Mapping[str, Any], rope: RopeSpec) -> tuple[float, ...] | None:
    """What `rope_freqs.weight` holds for this folder: float32 divisors that give the rotation's frequencies back to the
    last bit; None where it needs none."""
    if _kind(config) not in _BY_TENSOR:
        return None
    base = rotary_base(architecture, config)
    return tuple(_divisor(base ** (-2 * i / rope.rotary_dim), frequency) for i, frequency in enumerate(rope.inv_freq))


def _divisor(undivided: float, frequency: float) -> float:
    """The float32 next to `undivided / frequency` that leads back to `frequency` where it divides."""
    near = np.float32(undivided / frequency)
    for candidate in (near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))):
        if np.float32(undivided / float(candidate)) == np.float32(frequency):
            return float(candidate)
    return float(near)
