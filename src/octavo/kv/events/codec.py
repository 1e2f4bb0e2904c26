"""Batches as bytes: msgpack of `[ts, [event, ...], rank]`, each event a map (vLLM since 2026) or a positional array.

                     maps                                   arrays
    BlockStored      {"type": "BlockStored", name: value}   [tag, hashes, parent, tokens, block size, lora id, medium,
                                                             lora name, extra keys, group, kind, window]
    BlockRemoved     {"type": "BlockRemoved", ...}          [tag, hashes, medium, group]
    AllBlocksCleared {"type": "AllBlocksCleared"}           [tag]

A stamp must not disturb those who know nothing of it. Dynamo takes batches of exactly three elements, llm-d event types
that it knows, and both skip what they do not know inside an event: so it travels in a removal of no blocks.

    stamp            {"type": "BlockRemoved", "block_hashes": [], "stamp": {...}}
                                                            ["BlockRemoved", [], nil, nil, nil, nil, nil, nil, {...}]
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from octavo.kv.events.batches import AllBlocksCleared, BlockRemoved, BlockStored, Event, EventBatch, Stamp
from octavo.kv.events.words import HASH_MASK

EventFormat = Literal["map", "array"]
Kind = TypeVar("Kind")

STORED, REMOVED, CLEARED = "BlockStored", "BlockRemoved", "AllBlocksCleared"

_STORED_ORDER = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
_REMOVED_ORDER = ("block_hashes", "medium", "group_idx")
_STAMP_POSITION = 8
"""In the array of a removal: behind the places that Dynamo gives a meaning to."""

_MAX_TOKEN_ID = 2**32 - 1


class MalformedBatchError(ValueError):
    """Bytes that are no batch of events; says what is wrong with them."""


# ---- encoding

_encode = msgspec.msgpack.Encoder().encode


def encode_batch(batch: EventBatch, form: EventFormat) -> bytes:
    """The payload of a message."""
    write = _WRITERS[form]
    events = [write(event) for event in batch.events]
    if batch.stamp is not None:
        events.append(_STAMP_WRITERS[form](batch.stamp))
    return _encode((batch.ts, events, batch.data_parallel_rank))


def _as_map(event: Event) -> dict[str, Any]:
    match event:
        case BlockStored():
            return _stored_map(event)
        case BlockRemoved():
            fields: dict[str, Any] = {"type": REMOVED, "block_hashes": event.block_hashes, "medium": event.medium}
            return fields if event.group_idx is None else {**fields, "group_idx": event.group_idx}
        case AllBlocksCleared():
            return {"type": CLEARED}


def _stored_map(event: BlockStored) -> dict[str, Any]:
    """vLLM leaves out the fields behind `lora_name` where they say nothing; so do we."""
    fields: dict[str, Any] = {
        "type": STORED,
        "block_hashes": event.block_hashes,
        "parent_block_hash": event.parent_block_hash,
        "token_ids": event.token_ids,
        "block_size": event.block_size,
        "lora_id": None,
        "medium": event.medium,
        "lora_name": event.lora_name,
        "extra_keys": event.extra_keys,
        "group_idx": event.group_idx,
        "kv_cache_spec_kind": event.kv_cache_spec_kind,
        "kv_cache_spec_sliding_window": event.kv_cache_spec_sliding_window,
        "cache_salt": event.cache_salt,
    }
    for name in ("extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "cache_salt"):
        if fields[name] is None:
            del fields[name]
    return fields


def _as_array(event: Event) -> list[Any]:
    """There is no place for `cache_salt`: of a salted chain only the first block's extra keys tell."""
    fields = _as_map(event)
    match event:
        case BlockStored():
            return [STORED, *[fields.get(name) for name in _STORED_ORDER]]
        case BlockRemoved():
            return [REMOVED, *[fields.get(name) for name in _REMOVED_ORDER]]
        case AllBlocksCleared():
            return [CLEARED]


def _stamp_map(stamp: Stamp) -> dict[str, Any]:
    return {"type": REMOVED, "block_hashes": (), "medium": None, "stamp": stamp}


def _stamp_array(stamp: Stamp) -> list[Any]:
    return [REMOVED, (), *[None] * (_STAMP_POSITION - 2), stamp]


_WRITERS: dict[EventFormat, Callable[[Event], Any]] = {"map": _as_map, "array": _as_array}
_STAMP_WRITERS: dict[EventFormat, Callable[[Stamp], Any]] = {"map": _stamp_map, "array": _stamp_array}


# ---- decoding

_decode = msgspec.msgpack.Decoder().decode


def decode_batch(payload: bytes) -> EventBatch:
    """Reads a batch of any engine in either form; what it does not know inside an event is skipped.

    Raises:
        MalformedBatchError: it is none, or it holds an event of unknown type, after which nothing is known for sure.
    """
    try:
        whole = _decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBatchError(f"no msgpack: {error}") from None
    ts, events, rank = _elements(whole)
    stamp: Stamp | None = None
    read: list[Event] = []
    for raw in events:
        tag, fields = _fields_of(raw)
        if tag == REMOVED and "stamp" in fields:
            stamp = _convert(fields["stamp"], Stamp)
        else:
            read.append(_event(tag, fields))
    return EventBatch(ts=ts, events=tuple(read), data_parallel_rank=rank, stamp=stamp)


def _elements(whole: Any) -> tuple[float, list[Any], int | None]:
    """Time, events and rank of a batch, which may be an array or a map."""
    if isinstance(whole, dict):
        whole = [whole.get("ts"), whole.get("events"), whole.get("data_parallel_rank")]
    if not isinstance(whole, list) or len(whole) < 2:
        raise MalformedBatchError(f"a batch is [ts, events, rank], not {_brief(whole)}")
    ts, events, rank = whole[0], whole[1], whole[2] if len(whole) > 2 else None
    if not isinstance(ts, int | float) or not isinstance(events, list) or not isinstance(rank, int | None):
        raise MalformedBatchError(f"a batch is [number, list, rank], not {_brief(whole)}")
    return float(ts), events, rank


def _fields_of(raw: Any) -> tuple[str, dict[str, Any]]:
    """Tag and fields of an event in either form."""
    if isinstance(raw, dict):
        return str(raw.get("type")), raw
    if not isinstance(raw, list) or not raw:
        raise MalformedBatchError(f"an event is a map or an array, not {_brief(raw)}")
    tag = str(raw[0])
    fields = dict(zip(_STORED_ORDER if tag == STORED else _REMOVED_ORDER, raw[1:], strict=False))
    if tag == REMOVED and len(raw) > _STAMP_POSITION and isinstance(raw[_STAMP_POSITION], dict):
        fields["stamp"] = raw[_STAMP_POSITION]
    return tag, fields


def _event(tag: str, fields: dict[str, Any]) -> Event:
    if tag == CLEARED:
        return AllBlocksCleared()
    if tag not in (STORED, REMOVED):
        raise MalformedBatchError(f"unknown event {tag!r}")
    hashes = [_number(name) for name in _listed(fields, "block_hashes")]
    if tag == REMOVED:
        return _convert({**fields, "block_hashes": hashes}, BlockRemoved)
    parent = fields.get("parent_block_hash")
    parent = None if parent is None else _number(parent)
    event = _convert({**fields, "block_hashes": hashes, "parent_block_hash": parent}, BlockStored)
    tokens = event.token_ids or (0,)
    if event.block_size < 1 or min(tokens) < 0 or max(tokens) > _MAX_TOKEN_ID:
        raise MalformedBatchError(f"block size {event.block_size} or a token id is out of range")
    return event


def _listed(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise MalformedBatchError(f"{name} is {_brief(value)}, not a list")
    return value


def _number(name: Any) -> int:
    """A block's name as an unsigned 64-bit number: engines also send signed ones, and digests of 32 bytes."""
    if isinstance(name, bytes):
        return int.from_bytes(name[-8:], "big")
    if not isinstance(name, int):
        raise MalformedBatchError(f"a block hash is a number, not {_brief(name)}")
    return name & HASH_MASK


def _convert(value: Any, kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise MalformedBatchError(f"{kind.__name__}: {error}") from None


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
