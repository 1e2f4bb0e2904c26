"""What one message of an event stream says: events in their order, and a stamp that says which stream it is."""

from typing import Any

import msgspec

Medium = str | None
"""Name of a tier, see `words`; None stands for an engine's first tier."""


class BlockStored(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive blocks of one chain can be found in a medium from now on. Field names and meanings are vLLM's."""

    block_hashes: tuple[int, ...]
    """Names of the blocks as unsigned 64-bit numbers, see `words.short_hash`."""
    parent_block_hash: int | None
    """Name of the block before the first one; None at the start of a prompt."""
    token_ids: tuple[int, ...]
    """Those of all blocks, `block_size` each."""
    block_size: int
    medium: Medium = None
    lora_name: str | None = None
    extra_keys: tuple[tuple[Any, ...] | None, ...] | None = None
    """What beside its tokens enters a block's name, one entry per block: for salted prompts `(salt,)` for the first."""
    group_idx: int | None = None
    """Cache group; None where an engine has only one kind of layers and does not say."""
    kv_cache_spec_kind: str | None = None
    """Kind of the group's layers: `full_attention`, `sliding_window`, ..."""
    kv_cache_spec_sliding_window: int | None = None
    cache_salt: str | None = None
    """Salt of the whole chain (SGLang's field): known for blocks in the middle of it, too."""


class BlockRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks cannot be found in a medium any more."""

    block_hashes: tuple[int, ...]
    medium: Medium = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can be found in any medium any more."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """What is in one medium for one cache group, in short: equal contents have equal digests."""

    medium: Medium
    group_idx: int | None
    num_blocks: int
    xor_of_hashes: int


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Which stream a batch belongs to, and now and then what the state is behind it."""

    epoch: bytes
    """16 bytes, drawn by an engine at its start: equal epochs count the same sequence."""
    digests: tuple[Digest, ...] | None = None
    """Of everything that is stored once this batch is applied, sorted by medium and group, empty ones left out; None:
    this batch does not say."""


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of one message."""

    ts: float
    """Seconds since 1970 when it was made."""
    events: tuple[Event, ...]
    data_parallel_rank: int | None = None
    stamp: Stamp | None = None
    """None: the engine does not stamp its batches (vLLM and SGLang do not)."""
