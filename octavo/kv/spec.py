"""KV specs: the shape of cached state per layer. Bytes per token come from here and from nowhere else."""

from enum import StrEnum

import msgspec


class KVDtype(StrEnum):
    """Number format of cached K and V."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def num_bytes(self) -> int:
        return 4 if self is KVDtype.FP32 else 2


class AttentionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """K and V of one attention layer.

    Shapes per block: K and V each `[num_kv_heads, block_size, head_dim]` (their order in memory is the backend's).
    """

    num_kv_heads: int
    head_dim: int
    window: int | None = None
    """Sliding window in tokens, the token itself included: position p sees p - window + 1 .. p. None: full."""

    def bytes_per_token(self, dtype: KVDtype) -> int:
        return 2 * self.num_kv_heads * self.head_dim * dtype.num_bytes


class CacheGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that share one block table: equal spec, hence equal needs and equal hits."""

    spec: AttentionSpec
    num_layers: int

    def bytes_per_block(self, block_size: int, dtype: KVDtype) -> int:
        """Bytes of one block over all layers of the group."""
        return self.num_layers * block_size * self.spec.bytes_per_token(dtype)


def bytes_per_token(groups: tuple[CacheGroup, ...], dtype: KVDtype) -> int:
    """Bytes of KV that one token of context costs over all groups and layers."""
    return sum(g.num_layers * g.spec.bytes_per_token(dtype) for g in groups)
