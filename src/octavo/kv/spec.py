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


class KVLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How cache layers are laid over one pool of equal blocks.

    All groups hold the same number of layer places, so any block can serve any group: a block holds `block_size`
    tokens of `layers_per_block` layers. Layer i stands in group `placement[i][0]` at place `placement[i][1]`.
    """

    groups: tuple[CacheGroup, ...]
    placement: tuple[tuple[int, int], ...]
    layers_per_block: int
    num_blocks: int
    """Block 0, the null block, included: usable blocks are num_blocks - 1."""
    block_size: int
    dtype: KVDtype

    @property
    def bytes_per_block(self) -> int:
        return self.layers_per_block * self.block_size * max(g.spec.bytes_per_token(self.dtype) for g in self.groups)

    def blocks_per_request(self, num_tokens: int) -> int:
        """Blocks that a request of this many tokens holds at most, over all groups."""
        return len(self.groups) * -(-num_tokens // self.block_size)


def lay_out(layers: tuple[AttentionSpec, ...], *, num_blocks: int, block_size: int, dtype: KVDtype) -> KVLayout:
    """Groups layers of equal spec; a kind with more layers than the rarest one is cut into several groups.

    gemma3 with 15 sliding and 3 full layers becomes 6 groups of 3, so every block has the same size and one pool
    serves all (the idea is vLLM's hybrid allocator; padding is wasted where counts do not divide).
    """
    kinds: dict[AttentionSpec, list[int]] = {}
    for index, spec in enumerate(layers):
        kinds.setdefault(spec, []).append(index)
    per_block = min(len(members) for members in kinds.values())
    groups: list[CacheGroup] = []
    placement: list[tuple[int, int]] = [(0, 0)] * len(layers)
    for spec, members in kinds.items():
        for start in range(0, len(members), per_block):
            part = members[start : start + per_block]
            for place, layer in enumerate(part):
                placement[layer] = (len(groups), place)
            groups.append(CacheGroup(spec=spec, num_layers=len(part)))
    return KVLayout(
        groups=tuple(groups),
        placement=tuple(placement),
        layers_per_block=per_block,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=dtype,
    )
