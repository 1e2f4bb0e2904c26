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

CASES: dict[str, Case] = {
    "llama": Case("llama"),
    "llama, llama3 scaling, tied": Case("llama", {"rope_parameters": _LLAMA3, "tie_word_embeddings": True}),
    "qwen2": Case("qwen2", {"tie_word_embeddings": True}),
    "gemma3": Case("gemma3_text", {"head_dim": 32, "sliding_window": 20, "num_hidden_layers": 6}),
    "gpt2": Case("gpt2", _GPT2),
    "gpt2, scores scaled by layer, relu, untied": Case("gpt2", _GPT2_CHANGED),
}
