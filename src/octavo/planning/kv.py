"""KV memory: bytes per token, request and block; blocks; what fits."""

from dataclasses import dataclass, replace

from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, LatentSpec, lay_out
from octavo.planning.shape import ModelShape


@dataclass(frozen=True)
class KVFormat:
    """How cached numbers are kept."""

    name: str
    value_bytes: float
    scale_bytes: int = 0
    """Of the scale that the vector of one token and head shares, where it has one."""


FORMATS = {dtype.value: KVFormat(dtype.value, dtype.num_bytes, dtype.scale_bytes) for dtype in KVDtype}
"""Those that Octavo stores, by their names: 8-bit ones with a scale per token and head."""
PLAIN_FP8 = KVFormat("plain fp8", 1)
"""One scale for the whole cache, as others store it: nothing per token."""


def kv_bytes_per_token_per_layer(cache: AttentionSpec | LatentSpec, kv_format: KVFormat) -> float:
    """K and V of one token in one layer, or its latent vector and rotated key."""
    if isinstance(cache, LatentSpec):
        return _vector(cache.latent_dim, kv_format) + _vector(cache.rope_dim, kv_format)
    return 2 * cache.num_kv_heads * _vector(cache.head_dim, kv_format)


def kv_bytes_per_token(shape: ModelShape, kv_format: KVFormat) -> float:
    """Over all layers, while all of them need the token."""
    return sum(kv_bytes_per_token_per_layer(layer.cache, kv_format) for layer in shape.layers)


def kv_bytes_per_token_per_device(shape: ModelShape, kv_format: KVFormat, tp: int, pp: int = 1) -> float:
    """On the fullest device. Ranks share the KV heads; where there are fewer heads than ranks each holds one, and
    every rank holds all of a latent vector."""
    layers_per_stage = -(-shape.num_layers // pp)
    heaviest = sorted((_on_rank(layer.cache, kv_format, tp) for layer in shape.layers), reverse=True)
    return sum(heaviest[:layers_per_stage])


def kv_bytes(shape: ModelShape, num_tokens: int, kv_format: KVFormat) -> float:
    """Of one sequence: layers with a window hold no more than the window."""
    return sum(
        _held_tokens(layer.cache, num_tokens) * kv_bytes_per_token_per_layer(layer.cache, kv_format)
        for layer in shape.layers
    )


def as_multi_head(shape: ModelShape) -> ModelShape:
    """The same model with a KV head for each query head: what its cache would be without sharing."""
    layers = (
        replace(
            layer,
            cache=AttentionSpec(num_kv_heads=layer.num_heads, head_dim=layer.key_dim),
        )
        for layer in shape.layers
    )
    return replace(shape, layers=tuple(layers))


def kv_head_share(shape: ModelShape) -> float:
    """KV heads per query head, of the first layer."""
    layer = shape.layers[0]
    if isinstance(layer.cache, LatentSpec):
        raise ValueError(f"{shape.name} caches latent vectors and has no KV heads; ask for latent_share")
    return layer.cache.num_kv_heads / layer.num_heads


def latent_share(shape: ModelShape, key_dim: int | None = None) -> float:
    """A latent vector and its rotated key, of the K and V of all heads that it stands for.

    Args:
        key_dim: of one head; None: with its rotated part.
    """
    layer = shape.layers[0]
    if not isinstance(layer.cache, LatentSpec):
        raise ValueError(f"{shape.name} caches no latent vectors; ask for kv_head_share")
    whole = layer.num_heads * ((layer.key_dim if key_dim is None else key_dim) + layer.value_dim)
    return (layer.cache.latent_dim + layer.cache.rope_dim) / whole


def kv_layout(shape: ModelShape, block_size: int, kv_dtype: KVDtype) -> KVLayout:
    """How the engine lays the layers over blocks (one block beside the null block)."""
    return lay_out(tuple(layer.cache for layer in shape.layers), num_blocks=2, block_size=block_size, dtype=kv_dtype)


def num_blocks(num_tokens: int, block_size: int) -> int:
    """That hold so many tokens, the last perhaps in part."""
    return -(-num_tokens // block_size)


def num_full_blocks(num_tokens: int, block_size: int) -> int:
    """That a prefix of so many tokens fills: those that others can reuse."""
    return num_tokens // block_size


def num_tokens_beyond_full_blocks(num_tokens: int, block_size: int) -> int:
    """What of a shared prefix is computed again."""
    return num_tokens % block_size


def num_tokens_to_prefill(num_tokens: int, num_cached_tokens: int) -> int:
    """What a prompt still runs behind a prefix hit: at least its last token, whose logits are wanted."""
    return max(1, num_tokens - num_cached_tokens)


def block_bytes(block_size: int, token_bytes: float) -> float:
    """Of one block of all layers of a device."""
    return block_size * token_bytes


def kv_pool_bytes(num_devices: int, usable_bytes: float, total_weight_bytes: float) -> float:
    """What one replica leaves for KV on all its devices together."""
    return num_devices * usable_bytes - total_weight_bytes


def num_requests_that_fit(pool_bytes: float, request_bytes: float) -> int:
    """Requests of one size; pool and request both of one device, or both of all."""
    return int(pool_bytes // request_bytes)


def in_requests(num_bytes: float, request_bytes: float) -> float:
    """How many requests' KV takes as much; both of one device, or both of all."""
    return num_bytes / request_bytes


def _vector(num_values: int, kv_format: KVFormat) -> float:
    return num_values * kv_format.value_bytes + kv_format.scale_bytes


def _on_rank(cache: AttentionSpec | LatentSpec, kv_format: KVFormat, tp: int) -> float:
    whole = kv_bytes_per_token_per_layer(cache, kv_format)
    if isinstance(cache, LatentSpec):
        return whole
    return whole / cache.num_kv_heads * -(-cache.num_kv_heads // tp)


def _held_tokens(cache: AttentionSpec | LatentSpec, num_tokens: int) -> int:
    return num_tokens if cache.reach is None else min(num_tokens, cache.reach)
