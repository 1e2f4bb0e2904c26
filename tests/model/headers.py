"""Headers of small models of each family, as files of either kind would give them, to be changed by tests."""

from collections.abc import Mapping
from dataclasses import replace

from octavo.model.header import CheckpointHeader, Naming

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, MLP, VOCAB, CONTEXT = 64, 4, 2, 16, 7, 96, 50, 1024
WINDOW = 32


_GGUF_HEADS: dict[str, object] = {"attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM}
_GGUF_OWN: dict[str, dict[str, object]] = {
    "gemma": _GGUF_HEADS,
    "gemma2": {
        **_GGUF_HEADS,
        "attention.sliding_window": WINDOW,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3": {**_GGUF_HEADS, "attention.sliding_window": WINDOW, "rope.freq_base": 1e6},
    "granite": {"embedding_scale": 12.0, "attention.scale": 0.0625, "residual_scale": 0.25, "logit_scale": 8.0},
}


def gguf(family: str, **changes: object) -> CheckpointHeader:
    """A header in GGUF's names. Keys of `changes` lack the family's prefix and have `__` for a dot; None removes."""
    own: dict[str, object] = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": MLP,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    own |= _GGUF_OWN.get(family, {})
    own |= {key.replace("__", "."): value for key, value in changes.items()}
    metadata = {f"{family}.{key}": value for key, value in own.items() if value is not None}
    shapes = {"token_embd.weight": (VOCAB, HIDDEN)}
    return CheckpointHeader("model.gguf", Naming.GGUF, {"general.architecture": family, **metadata}, shapes)


_HF_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
}
_HF_GELU: dict[str, object] = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": None, "head_dim": HEAD_DIM}
_HF_OWN: dict[str, dict[str, object]] = {
    "mistral": {"sliding_window": WINDOW},
    "qwen3": {"head_dim": HEAD_DIM},
    "gemma": _HF_GELU,
    "gemma2": {**_HF_GELU, "sliding_window": WINDOW, "query_pre_attn_scalar": HEAD_DIM},
    "gemma3": {**_HF_GELU, "sliding_window": WINDOW, "query_pre_attn_scalar": HEAD_DIM, "rope_theta": 1e6},
    "granite": {
        "embedding_multiplier": 12.0,
        "attention_multiplier": 0.0625,
        "residual_multiplier": 0.25,
        "logits_scaling": 8.0,
    },
}


def hf(family: str, **changes: object) -> CheckpointHeader:
    """A header in Hugging Face's names; None removes a key."""
    config: dict[str, object] = {
        "architectures": [_HF_CLASSES[family]],
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    config |= _HF_OWN.get(family, {})
    config |= changes
    return CheckpointHeader("folder", Naming.HF, {k: v for k, v in config.items() if v is not None}, {})


def with_shapes(header: CheckpointHeader, shapes: Mapping[str, tuple[int, ...]]) -> CheckpointHeader:
    """The header of a checkpoint that holds further tensors."""
    return replace(header, shapes={**header.shapes, **shapes})
