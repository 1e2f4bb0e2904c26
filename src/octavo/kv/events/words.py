"""How Octavo's things are called on an event stream: tiers, kinds of layers, blocks."""

from typing import NamedTuple

from octavo.kv.hashing import BlockHash
from octavo.kv.record import Tier
from octavo.kv.spec import AttentionSpec, CacheSpec, KVLayout, LatentSpec

MEDIUM_BY_TIER: dict[Tier, str] = {Tier.DEVICE: "GPU", Tier.HOST: "CPU", Tier.DISK: "STORAGE"}
"""vLLM's names. The first tier is `GPU` on every platform: that is what routers give the highest weight."""

HASH_MASK = 2**64 - 1


def short_hash(block_hash: BlockHash) -> int:
    """A block's name on the wire: the last 8 of its 32 bytes as a big-endian number, as vLLM cuts its own. Equal blocks
    have equal numbers in every process. Among a million blocks two share a number with a chance of 3 in 10^8."""
    return int.from_bytes(block_hash[-8:], "big")


class GroupWords(NamedTuple):
    """A cache group as events describe it."""

    kind: str
    window: int | None


def group_words(layout: KVLayout) -> tuple[GroupWords, ...]:
    """[group] -> its description."""
    return tuple(_describe(group.spec) for group in layout.groups)


def _describe(spec: CacheSpec) -> GroupWords:
    if isinstance(spec, AttentionSpec):
        if spec.chunk is not None:
            return GroupWords("chunked_local_attention", None)
        return GroupWords("full_attention" if spec.window is None else "sliding_window", spec.window)
    return GroupWords("mla_attention" if isinstance(spec, LatentSpec) else "mamba", None)
