"""KV specs: the shape of cached state per layer. Bytes per token come from here and from nowhere else."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple

import msgspec


class KVDtype(StrEnum):
    """Number format of cached K and V.

    INT8 and FP8 (e4m3) are codes: each vector of one token and KV head, of K as of V, has a float32 scale, written with
    the token and never changed.
    """

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    FP8 = "fp8"

    @property
    def num_bytes(self) -> int:
        """Bytes of one number."""
        return _NUMBER_BYTES[self]

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scale that the numbers of a vector share."""
        return 4 if self in (KVDtype.INT8, KVDtype.FP8) else 0

    def vector_bytes(self, num_values: int) -> int:
        """Bytes of a vector of so many numbers: of one token and KV head."""
        return num_values * self.num_bytes + self.scale_bytes


_NUMBER_BYTES = {KVDtype.FP32: 4, KVDtype.FP16: 2, KVDtype.BF16: 2, KVDtype.INT8: 1, KVDtype.FP8: 1}


class AttentionSpec(msgspec.Struct, frozen=True, kw_only=True, tag="attention"):
    """K and V of one attention layer.

    Shapes per block: K and V each `[num_kv_heads, block_size, head_dim]` (their order in memory is the backend's).
    """

    num_kv_heads: int
    head_dim: int
    window: int | None = None
    """Sliding window in tokens, the token itself included: position p sees p - window + 1 .. p. None: no window."""
    chunk: int | None = None
    """Chunked-local attention: position p sees the positions up to p of its own run of `chunk` tokens, that is
    p // chunk * chunk .. p. None: no chunks. A layer has a window or chunks, not both."""

    def __post_init__(self) -> None:
        if self.window is not None and self.chunk is not None:
            raise ValueError(f"window={self.window}, chunk={self.chunk}: a layer has a window or chunks, not both")

    @property
    def reach(self) -> int | None:
        """Most tokens that one position needs, itself included; None: all before it."""
        return self.chunk if self.window is None else self.window

    @property
    def can_be_cut(self) -> bool:
        """The state of a block's first tokens is the first part of the block."""
        return True

    def first_needed(self, position: int) -> int:
        """First position whose state the token at `position` needs; never falls as `position` grows."""
        if self.window is not None:
            return max(0, position - self.window + 1)
        return 0 if self.chunk is None else position // self.chunk * self.chunk

    def bytes_per_token(self, dtype: KVDtype) -> int:
        """Bytes of K and V of one token in this layer."""
        return 2 * self.num_kv_heads * dtype.vector_bytes(self.head_dim)

    def bytes_per_block(self, block_size: int, dtype: KVDtype) -> int:
        """Bytes of this layer's part of a block."""
        return block_size * self.bytes_per_token(dtype)


class LatentSpec(msgspec.Struct, frozen=True, kw_only=True, tag="latent"):
    """The compressed state of one layer with multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): per token one
    latent vector from which K and V of all heads are made, and one rotated key that all heads share.

    Bookkeeping only: no kernel reads it yet.
    """

    latent_dim: int
    rope_dim: int

    @property
    def reach(self) -> int | None:
        """See `AttentionSpec.reach`."""
        return None

    @property
    def can_be_cut(self) -> bool:
        """See `AttentionSpec.can_be_cut`."""
        return True

    def first_needed(self, position: int) -> int:
        """See `AttentionSpec.first_needed`."""
        return 0

    def bytes_per_token(self, dtype: KVDtype) -> int:
        """Bytes of latent and rotated key of one token in this layer."""
        return dtype.vector_bytes(self.latent_dim) + dtype.vector_bytes(self.rope_dim)

    def bytes_per_block(self, block_size: int, dtype: KVDtype) -> int:
        """See `AttentionSpec.bytes_per_block`."""
        return block_size * self.bytes_per_token(dtype)


class RecurrentSpec(msgspec.Struct, frozen=True, kw_only=True, tag="recurrent"):
    """The state of one recurrent layer (linear attention, Mamba): as large after one token as after a thousand.

    A block holds one snapshot: the state behind the last token computed in it, for a full block the state at its
    border. A step goes on from the snapshot of the block before. Bookkeeping only: no kernel reads it yet.
    """

    state_bytes: int
    """Of one snapshot, in the format the state is kept in (seldom that of K and V)."""

    @property
    def reach(self) -> int | None:
        """See `AttentionSpec.reach`: the snapshot behind the token before."""
        return 2

    @property
    def can_be_cut(self) -> bool:
        """A snapshot says nothing about the tokens before its last."""
        return False

    def first_needed(self, position: int) -> int:
        """See `AttentionSpec.first_needed`."""
        return max(0, position - 1)

    def bytes_per_token(self, dtype: KVDtype) -> int:
        """Nothing: the state does not grow."""
        return 0

    def bytes_per_block(self, block_size: int, dtype: KVDtype) -> int:
        """See `AttentionSpec.bytes_per_block`; whatever its size, a block holds one snapshot."""
        return self.state_bytes


CacheSpec = AttentionSpec | LatentSpec | RecurrentSpec
"""The cached state of one layer."""


class CacheGroup(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Layers that share one block table: equal needs, hence equal hits."""

    spec: CacheSpec
    num_layers: int
    """Of that spec."""
    beside: tuple[CacheSpec, ...] = ()
    """Layers of a second model, which need what the others need; their shapes are their own."""

    @property
    def layers(self) -> tuple[CacheSpec, ...]:
        """All layers, in the order of their places in a block."""
        return (self.spec,) * self.num_layers + self.beside

    def bytes_per_token(self, dtype: KVDtype) -> int:
        """Bytes of one token over all layers of the group."""
        return sum(spec.bytes_per_token(dtype) for spec in self.layers)

    def bytes_per_block(self, block_size: int, dtype: KVDtype) -> int:
        """Bytes of one block over all layers of the group."""
        return sum(spec.bytes_per_block(block_size, dtype) for spec in self.layers)

    def most_blocks(self, num_tokens: int, max_step_tokens: int | None, block_size: int) -> int:
        """Most blocks that a request of `num_tokens` tokens holds in this group at one time, if no step runs more than
        `max_step_tokens` (None: any number) of them.

        Blocks are let go of when one gets full. So a step from c to e holds, with b the last border up to c:

            | let go | blocks that hold b - reach + 1 .. b - 1 | b ... c ... e - 1 |
                       (reach - 1) / block_size, rounded up      (block_size - 1 + e - c) / block_size, rounded up
        """
        all_blocks = -(-num_tokens // block_size)
        if self.spec.reach is None or max_step_tokens is None:
            return all_blocks
        before = -(-(self.spec.reach - 1) // block_size)
        return min(all_blocks, before + (max_step_tokens - 1 + block_size - 1) // block_size + 1)


def bytes_per_token(groups: tuple[CacheGroup, ...], dtype: KVDtype) -> int:
    """Bytes of KV that one token costs over all groups and layers, while all of them need it."""
    return sum(group.bytes_per_token(dtype) for group in groups)


class KVLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How cache layers are laid over one pool of equal blocks.

    All blocks are equal, so any block can serve any group: a block holds `block_size` tokens of `layers_per_block`
    layers, and has at each place as many bytes as the largest layer there. Layer i stands in group `placement[i][0]` at
    place `placement[i][1]`; those of a second model follow those of the first.
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
        return sum(self.place_bytes)

    @property
    def place_bytes(self) -> tuple[int, ...]:
        """[place] bytes of a block there."""
        sizes = [[spec.bytes_per_block(self.block_size, self.dtype) for spec in group.layers] for group in self.groups]
        return tuple(max(column) for column in zip_longest(*sizes, fillvalue=0))

    def layer_spec(self, layer: int) -> CacheSpec:
        """What layer i keeps."""
        group, place = self.placement[layer]
        return self.groups[group].layers[place]

    def blocks_per_request(self, num_tokens: int, max_step_tokens: int | None = None) -> int:
        """Most blocks that a request of this many tokens holds at one time, over all groups; see
        `CacheGroup.most_blocks`."""
        return sum(group.most_blocks(num_tokens, max_step_tokens, self.block_size) for group in self.groups)


def lay_out(
    layers: tuple[CacheSpec, ...],
    *,
    num_blocks: int,
    block_size: int,
    dtype: KVDtype,
    beside: tuple[CacheSpec, ...] = (),
) -> KVLayout:
    """Groups layers of equal spec; a kind with more layers than the rarest one is cut into several groups.

    gemma3 with 15 sliding and 3 full layers becomes 6 groups of 3, so every block has the same size and one pool
    serves all (the idea is vLLM's hybrid allocator; padding is wasted where counts do not divide).

    Args:
        beside: layers of a second model that runs over the same tokens. They share the block tables of layers that need
            what they need, or have groups of their own, whichever costs fewer bytes.
    """
    sizes = _Sizes(num_blocks, block_size, dtype)
    drafts = [_grouped(layers)]
    for members in _kinds([_needs(spec) for spec in beside]):
        placed = {len(layers) + index: beside[index] for index in members}
        ways = [(_joined(draft, placed), _apart(draft, placed, sizes)) for draft in drafts]
        drafts = [draft for pair in ways for draft in pair if draft is not None]
    layouts = [draft.layout(sizes) for draft in drafts]
    return min(layouts, key=lambda layout: (len(layout.groups) * layout.bytes_per_block, len(layout.groups)))


class _Sizes(NamedTuple):
    num_blocks: int
    block_size: int
    dtype: KVDtype


class _Draft(NamedTuple):
    """A layout while layers are being placed."""

    groups: tuple[CacheGroup, ...]
    placement: dict[int, tuple[int, int]]

    def layout(self, sizes: _Sizes) -> KVLayout:
        return KVLayout(
            groups=self.groups,
            placement=tuple(self.placement[layer] for layer in sorted(self.placement)),
            layers_per_block=max(len(group.layers) for group in self.groups),
            num_blocks=sizes.num_blocks,
            block_size=sizes.block_size,
            dtype=sizes.dtype,
        )


def _grouped(layers: Sequence[CacheSpec]) -> _Draft:
    """Groups of equal size, as far as counts divide."""
    kinds = _kinds(layers)
    per_block = min(map(len, kinds))
    groups: list[CacheGroup] = []
    placement: dict[int, tuple[int, int]] = {}
    for members in kinds:
        for start in range(0, len(members), per_block):
            part = members[start : start + per_block]
            placement |= {layer: (len(groups), place) for place, layer in enumerate(part)}
            groups.append(CacheGroup(spec=layers[part[0]], num_layers=len(part)))
    return _Draft(tuple(groups), placement)


def _joined(draft: _Draft, placed: Mapping[int, CacheSpec]) -> _Draft | None:
    """Layers of equal needs spread over the groups that have these needs; None if there is none."""
    needs = _needs(next(iter(placed.values())))
    hosts = [index for index, group in enumerate(draft.groups) if _needs(group.spec) == needs]
    if not hosts:
        return None
    share = -(-len(placed) // len(hosts))
    groups, placement = list(draft.groups), dict(draft.placement)
    for i, (layer, spec) in enumerate(placed.items()):
        host = hosts[i // share]
        group = groups[host]
        placement[layer] = (host, len(group.layers))
        groups[host] = CacheGroup(spec=group.spec, num_layers=group.num_layers, beside=(*group.beside, spec))
    return _Draft(tuple(groups), placement)


def _apart(draft: _Draft, placed: Mapping[int, CacheSpec], sizes: _Sizes) -> _Draft:
    """Layers of equal needs in groups of their own, each as many of them as fit in a block as it is."""
    room = draft.layout(sizes).bytes_per_block
    groups, placement = list(draft.groups), dict(draft.placement)
    left = 0
    for layer, spec in placed.items():
        size = spec.bytes_per_block(sizes.block_size, sizes.dtype)
        if size > left:
            groups.append(CacheGroup(spec=spec, num_layers=1))
            left = room
        else:
            group = groups[-1]
            groups[-1] = CacheGroup(spec=group.spec, num_layers=group.num_layers, beside=(*group.beside, spec))
        left -= size
        placement[layer] = (len(groups) - 1, len(groups[-1].layers) - 1)
    return _Draft(tuple(groups), placement)


def _needs(spec: CacheSpec) -> CacheSpec:
    """The same for layers of equal needs, whatever their shapes."""
    return msgspec.structs.replace(spec, num_kv_heads=1, head_dim=1) if isinstance(spec, AttentionSpec) else spec


def _kinds(specs: Sequence[CacheSpec]) -> list[list[int]]:
    """Indices of equal ones, in the order in which each kind appears first."""
    kinds: dict[CacheSpec, list[int]] = {}
    for index, spec in enumerate(specs):
        kinds.setdefault(spec, []).append(index)
    return list(kinds.values())
