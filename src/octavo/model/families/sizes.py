"""Reading the numbers that every decoder has, from either kind of metadata."""

from collections.abc import Collection, Iterable, Mapping

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

_GGUF_EXPERT_KEYS = ("expert_count", "expert_used_count", "expert_shared_count")
_HF_EXPERT_KEYS = ("num_local_experts", "num_experts", "moe_intermediate_size")
_GGUF_FEATURES: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.kv_lora_rank": (0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0,),
    "residual_scale": (0.0,),
    "rope.dimension_sections": (),
    "use_parallel_residual": (False,),
}
"""Keys that change the arithmetic -> values that do not."""
_HF_FEATURES: dict[str, tuple[object, ...]] = {
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "n_routed_experts": (0,),
    "pruned_heads": ({},),
}


def gguf_fields(header: CheckpointHeader, architecture: str) -> Fields:
    """The keys of one architecture, which GGUF prefixes with its name."""
    return Fields(header.path, header.metadata, f"{architecture}.")


def hf_fields(header: CheckpointHeader) -> Fields:
    """The keys of config.json."""
    return Fields(f"{header.path}: config.json", header.metadata)


def gguf_sizes(
    header: CheckpointHeader,
    fields: Fields,
    embedding: str,
    *,
    computed: Collection[str] = (),
    with_experts: bool = False,
) -> Sizes:
    """Sizes from GGUF metadata; the vocabulary is as long as the tensor `embedding`.

    Args:
        computed: keys of features that the caller computes.
        with_experts: the caller computes mixtures of experts and reads their keys.

    Raises:
        ModelFileError: a key is missing or absurd.
        UnsupportedModelError: a feature that nobody computes, or sizes that differ between layers.
    """
    _refuse(fields, _GGUF_FEATURES, computed, () if with_experts else _GGUF_EXPERT_KEYS)
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


def hf_sizes(fields: Fields, *, head_dim: int | None = None, with_experts: bool = False) -> Sizes:
    """Sizes from config.json; errors as of `gguf_sizes`.

    Args:
        head_dim: where the config has none; None: the heads share the width.
        with_experts: as of `gguf_sizes`.
    """
    _refuse(fields, _HF_FEATURES, (), () if with_experts else _HF_EXPERT_KEYS)
    hidden = fields.integer("hidden_size", 1, _MAX_WIDTH)
    heads = fields.integer("num_attention_heads", 1, _MAX_HEADS)
    kv_heads = fields.integer("num_key_value_heads", 1, heads, default=heads)
    return Sizes(
        vocab_size=fields.integer("vocab_size", 1, _MAX_VOCAB),
        hidden_size=hidden,
        num_layers=fields.integer("num_hidden_layers", 1, _MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=_dividing(fields, "num_key_value_heads", heads, kv_heads),
        head_dim=_head_dim(fields, "head_dim", hidden, heads, head_dim),
        mlp_size=fields.integer("intermediate_size", 1, _MAX_WIDTH),
        max_positions=fields.integer("max_position_embeddings", 1, _MAX_POSITIONS),
        rms_eps=fields.number("rms_norm_eps", 1e-12, 0.1),
    )


def _refuse(
    fields: Fields, features: Mapping[str, tuple[object, ...]], computed: Collection[str], expert_keys: Iterable[str]
) -> None:
    for key, neutral in features.items():
        if key not in computed:
            fields.accept(key, *neutral)
    for key in expert_keys:
        fields.accept(key, 0)


def _head_dim(fields: Fields, key: str, hidden: int, heads: int, default: int | None = None) -> int:
    if default is None and not fields.has(key) and hidden % heads:
        raise fields.error(key, f"is needed: {heads} heads do not divide a width of {hidden}")
    head_dim = fields.integer(key, 2, _MAX_HEAD_DIM, default=default or max(2, hidden // heads))
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
