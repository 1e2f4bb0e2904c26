"""The models of the parity matrix: one line each, in the words of transformers' configs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SMALL: Mapping[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
"""What a case has unless it says otherwise."""


@dataclass(frozen=True)
class Case:
    """A model that transformers makes: random weights, every value from its config's class."""

    model_type: str
    """As transformers' `AutoConfig` names it; also where its family is found."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Beside `SMALL`, or instead of parts of it."""
    context: int = 96
    """The engine's `max_model_len`."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the config's class."""
        return {**SMALL, **self.config}


_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

_GPT2 = {"n_inner": 96, "tie_word_embeddings": True}
_GPT2_CHANGED = {
    "scale_attn_by_inverse_layer_idx": True,
    "reorder_and_upcast_attn": True,
    "activation_function": "relu",
    "tie_word_embeddings": False,
}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.0],
    "long_factor": [1.0, 1.5, 2.0, 4.0, 8.0, 16.0],
}
_WIDE = {"head_dim": 32, "num_key_value_heads": 1}
_WINDOWED = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
_GEMMA = {"head_dim": 32, "sliding_window": 20}
_MULTIPLIED = {
    "embedding_multiplier": 6.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.4,
    "logits_scaling": 3.0,
}
_EXPERTS = {"num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 48}

CASES: dict[str, Case] = {
    "llama": Case("llama"),
    "llama, tied, llama3 scaling": Case("llama", {"rope_parameters": _LLAMA3, "tie_word_embeddings": True}),
    "llama, linear scaling, biases": Case(
        "llama",
        {
            "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "llama, dynamic NTK": Case(
        "llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}, **_WIDE}
    ),
    "llama, YaRN": Case("llama", {"rope_parameters": _YARN}),
    "mistral, window of 40": Case("mistral", {"sliding_window": 40, **_WIDE}),
    "mistral, no window": Case("mistral", {"sliding_window": None}),
    "qwen2": Case("qwen2", {"tie_word_embeddings": True}),
    "qwen2, windows, YaRN": Case("qwen2", {"rope_parameters": _YARN, **_WINDOWED}),
    "qwen3": Case("qwen3", {"head_dim": 32}),
    "qwen3, windows, biases": Case("qwen3", {"head_dim": 16, "attention_bias": True, **_WINDOWED}),
    "gemma": Case("gemma", {"head_dim": 32, "num_key_value_heads": 1}),
    "gemma2": Case(
        "gemma2", {**_GEMMA, "query_pre_attn_scalar": 24, "final_logit_softcapping": 5.0, "attn_logit_softcapping": 4.0}
    ),
    "gemma3": Case("gemma3_text", {**_GEMMA, "num_hidden_layers": 6}),
    "phi3, window of 40": Case("phi3", {"sliding_window": 40}),
    "phi3, part of a head turns": Case("phi3", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "phi3, LongRoPE, short": Case("phi3", {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 128}),
    "phi3, LongRoPE, long": Case(
        "phi3",
        {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 32, "max_position_embeddings": 128},
    ),
    "granite": Case("granite", _MULTIPLIED),
    "olmo2": Case("olmo2"),
    "gpt2": Case("gpt2", _GPT2),
    "gpt2, scores scaled by layer, relu, untied": Case("gpt2", _GPT2_CHANGED),
    "mixtral": Case("mixtral", {"num_local_experts": 6}),
    "qwen2_moe": Case("qwen2_moe", {**_EXPERTS, "shared_expert_intermediate_size": 80, "mlp_only_layers": [1]}),
    "qwen3_moe": Case("qwen3_moe", {**_EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
}
