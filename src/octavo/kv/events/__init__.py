"""KV events: what an engine tells others of its cache, in the words of vLLM's event stream, and what it takes to follow
one. Plain data and bookkeeping; sockets are elsewhere."""

from octavo.kv.events.batches import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Digest,
    Event,
    EventBatch,
    Medium,
    Stamp,
)
from octavo.kv.events.codec import EventFormat, MalformedBatchError, decode_batch, encode_batch
from octavo.kv.events.recorder import EventRecorder
from octavo.kv.events.residency import Residency, Shelf, StoredBlock, pack_tokens
from octavo.kv.events.stream import EventStream, Reply
from octavo.kv.events.translate import Translator
from octavo.kv.events.words import MEDIUM_BY_TIER, GroupWords, group_words, short_hash

__all__ = [
    "MEDIUM_BY_TIER",
    "AllBlocksCleared",
    "BlockRemoved",
    "BlockStored",
    "Digest",
    "Event",
    "EventBatch",
    "EventFormat",
    "EventRecorder",
    "EventStream",
    "GroupWords",
    "MalformedBatchError",
    "Medium",
    "Reply",
    "Residency",
    "Shelf",
    "Stamp",
    "StoredBlock",
    "Translator",
    "decode_batch",
    "encode_batch",
    "group_words",
    "pack_tokens",
    "short_hash",
]
