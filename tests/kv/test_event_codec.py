"""Batches on the wire: what is written, byte by byte where others read it, and what is read of others."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Digest,
    EventBatch,
    MalformedBatchError,
    Stamp,
    decode_batch,
    encode_batch,
)

STORED = BlockStored(
    block_hashes=(2**64 - 1, 7),
    parent_block_hash=5,
    token_ids=(1, 2, 3, 4),
    block_size=2,
    medium="GPU",
    group_idx=0,
    kv_cache_spec_kind="full_attention",
)
REMOVED = BlockRemoved(block_hashes=(7,), medium="CPU", group_idx=1)
STAMP = Stamp(epoch=b"e" * 16, digests=(Digest(medium="GPU", group_idx=0, num_blocks=2, xor_of_hashes=2**63),))
BATCH = EventBatch(ts=1.5, events=(STORED, REMOVED, AllBlocksCleared()), data_parallel_rank=0, stamp=STAMP)


def plain(batch: EventBatch, form: str) -> list:
    return msgspec.msgpack.decode(encode_batch(batch, form))


def test_maps_hold_vllms_fields_and_the_stamp_is_a_removal_of_nothing() -> None:
    ts, events, rank = plain(BATCH, "map")
    assert (ts, rank) == (1.5, 0)
    assert events == [
        {
            "type": "BlockStored",
            "block_hashes": [2**64 - 1, 7],
            "parent_block_hash": 5,
            "token_ids": [1, 2, 3, 4],
            "block_size": 2,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        },
        {"type": "BlockRemoved", "block_hashes": [7], "medium": "CPU", "group_idx": 1},
        {"type": "AllBlocksCleared"},
        {
            "type": "BlockRemoved",
            "block_hashes": [],
            "medium": None,
            "stamp": {
                "epoch": b"e" * 16,
                "digests": [{"medium": "GPU", "group_idx": 0, "num_blocks": 2, "xor_of_hashes": 2**63}],
            },
        },
    ]


def test_arrays_hold_the_same_in_vllms_order() -> None:
    _, events, _ = plain(BATCH, "array")
    stored, removed, cleared, stamp = events
    none = [None] * 5
    assert stored == [
        "BlockStored",
        [2**64 - 1, 7],
        5,
        [1, 2, 3, 4],
        2,
        None,
        "GPU",
        None,
        None,
        0,
        "full_attention",
        None,
    ]
    assert removed == ["BlockRemoved", [7], "CPU", 1] and cleared == ["AllBlocksCleared"]
    assert stamp[:8] == ["BlockRemoved", [], None, *none] and stamp[8]["epoch"] == b"e" * 16 and len(stamp) == 9


SALTED = msgspec.structs.replace(STORED, extra_keys=(("s",), None), cache_salt="s")
WINDOW = msgspec.structs.replace(STORED, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=9)


@pytest.mark.parametrize("stored", [STORED, SALTED, WINDOW])
def test_maps_come_back_whole(stored: BlockStored) -> None:
    batch = msgspec.structs.replace(BATCH, events=(stored, REMOVED))
    assert decode_batch(encode_batch(batch, "map")) == batch


@pytest.mark.parametrize("stored", [STORED, SALTED, WINDOW])
def test_arrays_come_back_but_for_the_salt_of_the_chain(stored: BlockStored) -> None:
    batch = msgspec.structs.replace(BATCH, events=(stored, REMOVED, AllBlocksCleared()))
    unsalted = msgspec.structs.replace(stored, cache_salt=None)
    expected = msgspec.structs.replace(batch, events=(unsalted, REMOVED, AllBlocksCleared()))
    assert decode_batch(encode_batch(batch, "array")) == expected


class VllmStored(msgspec.Struct, tag="BlockStored", omit_defaults=True):
    """The fields of vLLM 0.32, with its defaults."""

    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class VllmRemoved(msgspec.Struct, tag="BlockRemoved", omit_defaults=True):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class VllmCleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class VllmBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[VllmStored | VllmRemoved | VllmCleared]
    data_parallel_rank: int | None = None


def test_a_reader_with_vllms_types_reads_ours() -> None:
    read = msgspec.msgpack.decode(encode_batch(BATCH, "map"), type=VllmBatch)
    stored, removed, cleared, stamp = read.events
    assert stored.block_hashes == [2**64 - 1, 7] and stored.token_ids == [1, 2, 3, 4]
    assert removed.block_hashes == [7] and isinstance(cleared, VllmCleared) and stamp.block_hashes == []


def test_batches_of_vllm_are_read() -> None:
    """Names as digests and as signed numbers, and fields that we do not know."""
    stored = VllmStored([b"\0" * 24 + b"\x01" * 8, -1], None, [1, 2, 3, 4], 2, 3, None, "lora", session_id="x")
    batch = VllmBatch(2.0, [stored, VllmRemoved([-2], "GPU", locality="LOCAL"), VllmCleared()])
    read = decode_batch(msgspec.msgpack.encode(batch))
    assert read.stamp is None and read.data_parallel_rank is None
    assert read.events[0].block_hashes == (0x0101010101010101, 2**64 - 1)
    assert (read.events[0].lora_name, read.events[0].medium) == ("lora", None)
    assert read.events[1] == BlockRemoved(block_hashes=(2**64 - 2,), medium="GPU")


@pytest.mark.parametrize(
    "raw",
    [
        [1.0, [["BlockStored", [1], None, [5, 6], 2, None]]],
        [1.0, [["BlockStored", [1], None, [5, 6], 2, None, "GPU", None, None, 0, "full_attention", None, "new", 1]], 3],
        {
            "ts": 1,
            "events": [{"type": "BlockStored", "block_hashes": [1], "token_ids": [5, 6], "block_size": 2, "new": 1}],
        },
        [1.0, [{"type": "BlockStored", "block_hashes": [1], "token_ids": [5, 6], "block_size": 2}], 0, "new", {}],
    ],
)
def test_short_long_and_mapped_batches_are_read(raw: object) -> None:
    (event,) = decode_batch(msgspec.msgpack.encode(raw)).events
    assert (event.block_hashes, event.token_ids, event.block_size) == ((1,), (5, 6), 2)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (7, "a batch is"),
        ([1.0], "a batch is"),
        (["x", [], 0], "a batch is"),
        ([1.0, [7], 0], "an event is"),
        ([1.0, [[]], 0], "an event is"),
        ([1.0, [{"type": "Moved"}], 0], "unknown event 'Moved'"),
        ([1.0, [{"type": "BlockRemoved"}], 0], "block_hashes is None, not a list"),
        ([1.0, [{"type": "BlockRemoved", "block_hashes": ["x"]}], 0], "a block hash is a number"),
        ([1.0, [{"type": "BlockStored", "block_hashes": [1], "token_ids": [1]}], 0], "block_size"),
        ([1.0, [["BlockStored", [1], None, [-1], 1]], 0], "out of range"),
        ([1.0, [["BlockStored", [1], None, [1], 0]], 0], "block size 0"),
        ([1.0, [{"type": "BlockRemoved", "block_hashes": [], "stamp": {"epoch": 1}}], 0], "Stamp"),
    ],
)
def test_what_is_no_batch_is_refused(raw: object, problem: str) -> None:
    with pytest.raises(MalformedBatchError, match=problem):
        decode_batch(msgspec.msgpack.encode(raw))


@given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda tail: encode_batch(BATCH, "map")[:-20] + tail))
def test_any_bytes_are_a_batch_or_refused(payload: bytes) -> None:
    try:
        decode_batch(payload)
    except MalformedBatchError:
        return


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(MalformedBatchError):
        decode_batch(b"\x91" * 100_000)
