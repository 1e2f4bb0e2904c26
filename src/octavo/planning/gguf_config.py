"""GGUF metadata in the words of config.json, for architectures that Octavo does not run."""

from collections.abc import Mapping
from typing import Any

from octavo.model.families.naming import EMBEDDING, gguf_is_tied
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.planning.from_config import Traits

_NAMES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "rope.dimension_count": "qk_rope_head_dim",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
}
_ROUTER_BIAS = ".exp_probs_b.bias"
_FIRST_Q = "blk.0.attn_q"
_NORMS_OF_A_LAYER = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")


def config_of_gguf(header: CheckpointHeader, architecture: str) -> tuple[Fields, Traits]:
    """The keys as config.json would have them, and what the tensors say of norms and biases."""
    prefix = f"{architecture}."
    given = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    config: dict[str, Any] = {_NAMES[key]: _one(value) for key, value in given.items() if key in _NAMES and value != 0}
    config |= _latent_heads(given) if "kv_lora_rank" in config else {}
    if EMBEDDING[Naming.GGUF] in header.shapes:
        config["vocab_size"] = header.shapes[EMBEDDING[Naming.GGUF]][0]
    config["tie_word_embeddings"] = gguf_is_tied(header)
    if any(name.endswith(_ROUTER_BIAS) for name in header.shapes):
        config["topk_method"] = "noaux_tc"
    norms = sum(f"blk.0.{name}.weight" in header.shapes for name in _NORMS_OF_A_LAYER)
    traits = Traits(
        qk_norm=f"{_FIRST_Q}_norm.weight" in header.shapes,
        qkv_bias=f"{_FIRST_Q}.bias" in header.shapes,
        norms_per_layer=norms,
    )
    return Fields(header.path, config), traits


def _one(value: object) -> object:
    """The one value of a list that has one for each layer; a list that differs stays and is told as absurd."""
    if isinstance(value, list | tuple) and len(set(value)) == 1:
        return value[0]
    return value


def _latent_heads(given: Mapping[str, object]) -> dict[str, object]:
    """Newer files give the heads' own sizes beside those of the latent vector, older ones give only the former."""
    key = given.get("attention.key_length_mla", given.get("attention.key_length"))
    value = given.get("attention.value_length_mla", given.get("attention.value_length"))
    rope = given.get("rope.dimension_count")
    plain = key - rope if isinstance(key, int) and isinstance(rope, int) else None
    return {"qk_nope_head_dim": plain, "v_head_dim": value}
