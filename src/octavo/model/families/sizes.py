"""Reading the numbers that every decoder has, from either kind of metadata."""

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.config import Sizes
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader

_MAX_WIDTH = 1 << 20
_MAX_LAYERS = 1024
_MAX_HEADS = 4096
_MAX_HEAD_DIM = 1024
_MAX_POSITIONS = 1 << 30
_MAX_VOCAB = 1 << 24

_GGUF_SCALES_AND_CAPS = (
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.scale",
    "attn_logit_softcapping",
    "embedding_scale",
    "logit_scale",
    "residual_scale",
)
"""0 means "not set" in all of them."""


def gguf_fields(header: CheckpointHeader, architecture: str) -> Fields:
    """The keys of one architecture, which GGUF prefixes with its name."""
    return Fields(header.path, header.metadata, f"{architecture}.")


def hf_fields(header: CheckpointHeader) -> Fields:
    """The keys of config.json."""
    return Fields(f"{header.path}: config.json", header.metadata)


def gguf_sizes(header: CheckpointHeader, fields: Fields, embedding: str) -> Sizes:
    """Sizes from GGUF metadata; the vocabulary is as long as the tensor `embedding`.

    Raises:
        ModelFileError: a key is missing or absurd.
        UnsupportedModelError: mixture of experts, sizes that differ between layers, other features of the format.
    """
    for key in ("expert_count", "expert_used_count", "expert_shared_count", "attention.kv_lora_rank"):
        fields.accept(key, 0)
    for key in _GGUF_SCALES_AND_CAPS:
        fields.accept(key, 0.0)
    fields.accept("rope.dimension_sections")
    fields.accept("attention.causal", True)
    fields.accept("use_parallel_residual", False)
    layers = fields.integer("block_count", 1, _MAX_LAYERS)
    hidden = fields.integer("embedding_length", 1, _MAX_WIDTH)
    heads = fields.per_layer("attention.head_count", layers, 1, _MAX_HEADS)
    kv_heads = fields.per_layer("attention.head_count_kv", layers, 1, heads, default=heads)
    head_dim = _head_dim(fields, "attention.key_length", hidden, heads)
    fields.accept("attention.value_length", head_dim)
    return Sizes(
        vocab_size=_embedding_rows(header, embedding),
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_dividing(fields, "attention.head_count_kv", heads, kv_heads),
        head_dim=head_dim,
        mlp_size=fields.per_layer("feed_forward_length", layers, 1, _MAX_WIDTH),
        max_positions=fields.integer("context_length", 1, _MAX_POSITIONS),
        rms_eps=fields.number("attention.layer_norm_rms_epsilon", 1e-12, 0.1),
    )


def hf_sizes(fields: Fields) -> Sizes:
    """Sizes from config.json; raises as `gguf_sizes`."""
    for key in ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size"):
        fields.accept(key, 0)
    fields.accept("pruned_heads", {})
    fields.accept("is_encoder_decoder", False)
    fields.accept("add_cross_attention", False)
    hidden = fields.integer("hidden_size", 1, _MAX_WIDTH)
    heads = fields.integer("num_attention_heads", 1, _MAX_HEADS)
    kv_heads = fields.integer("num_key_value_heads", 1, heads, default=heads)
    return Sizes(
        vocab_size=fields.integer("vocab_size", 1, _MAX_VOCAB),
        hidden_size=hidden,
        num_layers=fields.integer("num_hidden_layers", 1, _MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=_dividing(fields, "num_key_value_heads", heads, kv_heads),
        head_dim=_head_dim(fields, "head_dim", hidden, heads),
        mlp_size=fields.integer("intermediate_size", 1, _MAX_WIDTH),
        max_positions=fields.integer("max_position_embeddings", 1, _MAX_POSITIONS),
        rms_eps=fields.number("rms_norm_eps", 1e-12, 0.1),
    )


def _head_dim(fields: Fields, key: str, hidden: int, heads: int) -> int:
    if not fields.has(key) and hidden % heads:
        raise fields.error(key, f"is needed: {heads} heads do not divide a width of {hidden}")
    head_dim = fields.integer(key, 2, _MAX_HEAD_DIM, default=max(2, hidden // heads))
    if head_dim % 2:
        raise UnsupportedModelError(f"{fields.path}: a head size of {head_dim} is odd, so it has no rotary pairs")
    return head_dim


def _dividing(fields: Fields, key: str, heads: int, kv_heads: int) -> int:
    if heads % kv_heads:
        raise fields.error(key, f"does not divide the {heads} attention heads")
    return kv_heads


def _embedding_rows(header: CheckpointHeader, name: str) -> int:
    shape = header.shapes.get(name)
    if shape is None or len(shape) != 2 or not 1 <= shape[0] <= _MAX_VOCAB:
        raise ModelFileError(f"{header.path}: tensor {name} has shape {shape}, not [vocabulary, width]")
    return shape[0]
