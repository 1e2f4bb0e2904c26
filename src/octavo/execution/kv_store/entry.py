"""The header of a block on disk: what it is, whose it is, and how to tell that it is unharmed.

    file     | head | entry 0 | entry 1 | ...             entry i describes slot i of the file of blocks
    head     | magic, version, block size, entry bytes, slot bytes, fingerprint | digest |
    entry    | mark, group, block bytes, fingerprint, block hash, parent hash, salt, digest of the block's bytes,
               token ids | digest | stamp |

All numbers are little-endian. Entries are equally long and apart from the blocks, so that one read tells all that lies
in ten gigabytes. A digest covers everything before it; the stamp, outside, says when the block was last used.
"""

from dataclasses import dataclass
from functools import cached_property
from struct import Struct

import msgspec
from xxhash import xxh3_128_digest

from octavo.kv.record import BlockRecord

VERSION = 1
"""Of the format of both files: raise it with any change."""
_MAGIC = b"octavokv"
_HEAD = Struct("<8sIIIQ32s")
_FIXED = Struct("<4sIQ32s32s?32sh16s")
_STAMP = Struct("<Q")
_DIGEST_BYTES = 16
_MAX_SALT_BYTES = 512
"""128 characters of UTF-8, as many as a request may have."""

HEAD_BYTES = 128
MARK = b"KVBL"
FREE = bytes(len(MARK))
"""In place of the mark: an entry without a block, whatever follows."""


class DamagedError(ValueError):
    """Bytes that are not what was written."""


class ForeignError(ValueError):
    """Sound bytes of another model, format or size of block."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A block on disk."""

    record: BlockRecord
    num_bytes: int
    """Of the block itself."""
    digest: bytes
    """Of these bytes."""
    stamp: int
    """The larger, the later it was stored or loaded."""


def digest(data: bytes | memoryview) -> bytes:
    """What proves bytes unharmed: XXH3, 128 bits."""
    return xxh3_128_digest(data)


@dataclass(frozen=True)
class EntryFormat:
    """Entries of one file: whose blocks they describe and how large these are."""

    fingerprint: bytes
    """32 bytes that name all that decides the bits of a block; blocks of another are foreign."""
    block_size: int
    slot_bytes: int
    """Of the largest block of any group."""

    @cached_property
    def num_bytes(self) -> int:
        """Bytes of an entry."""
        return self.stamp_at + _STAMP.size

    @cached_property
    def stamp_at(self) -> int:
        """Where the stamp stands in an entry."""
        return self._body_bytes + _DIGEST_BYTES

    @cached_property
    def _body_bytes(self) -> int:
        return _FIXED.size + self._tokens.size + _MAX_SALT_BYTES

    @cached_property
    def _tokens(self) -> Struct:
        return Struct(f"<{self.block_size}I")

    def head(self) -> bytes:
        """The first `HEAD_BYTES` bytes of the file."""
        body = _HEAD.pack(_MAGIC, VERSION, self.block_size, self.num_bytes, self.slot_bytes, self.fingerprint)
        return (body + digest(body)).ljust(HEAD_BYTES, b"\0")

    def check_head(self, raw: bytes) -> None:
        """
        Raises:
            DamagedError, ForeignError: the file is not one of this format.
        """
        body = raw[: _HEAD.size]
        if len(raw) < HEAD_BYTES or raw[_HEAD.size :][:_DIGEST_BYTES] != digest(body):
            raise DamagedError("damaged at its beginning")
        if raw != self.head():
            magic, version, block_size, *_ = _HEAD.unpack(body)
            raise ForeignError(f"of format {magic!r} {version}, blocks of {block_size} tokens, or of another model")

    def encode(self, entry: Entry) -> bytes:
        """The `num_bytes` bytes of an entry."""
        record = entry.record
        salt = None if record.cache_salt is None else record.cache_salt.encode()
        fixed = _FIXED.pack(
            MARK,
            record.group,
            entry.num_bytes,
            self.fingerprint,
            record.block_hash,
            record.parent_hash is not None,
            record.parent_hash or b"",
            -1 if salt is None else len(salt),
            entry.digest,
        )
        tokens = self._tokens.pack(*record.token_ids)
        body = fixed + tokens + (salt or b"").ljust(_MAX_SALT_BYTES, b"\0")
        return body + digest(body) + self.stamp(entry.stamp)

    def decode(self, raw: bytes | memoryview) -> Entry | None:
        """Reads an entry; None if there is no block.

        Raises:
            DamagedError, ForeignError: not to be trusted.
        """
        mark = bytes(raw[: len(MARK)])
        if mark == FREE:
            return None
        body = bytes(raw[: self._body_bytes])
        if mark != MARK or raw[self._body_bytes : self.stamp_at] != digest(body):
            raise DamagedError("an entry is damaged")
        _, group, num_bytes, fingerprint, block_hash, has_parent, parent, salt_bytes, data_digest = _FIXED.unpack_from(
            body
        )
        if fingerprint != self.fingerprint:
            raise ForeignError("an entry of another model")
        tokens = self._tokens.unpack_from(body, _FIXED.size)
        salt_at = self._body_bytes - _MAX_SALT_BYTES
        record = BlockRecord(
            group=group,
            block_hash=block_hash,
            parent_hash=parent if has_parent else None,
            token_ids=tokens,
            cache_salt=None if salt_bytes < 0 else body[salt_at : salt_at + salt_bytes].decode(),
        )
        (stamp,) = _STAMP.unpack_from(raw, self.stamp_at)
        return Entry(record=record, num_bytes=num_bytes, digest=data_digest, stamp=stamp)

    @staticmethod
    def stamp(number: int) -> bytes:
        """The bytes of a stamp."""
        return _STAMP.pack(number)

    def fits(self, record: BlockRecord) -> str:
        """What keeps a block from being described by an entry; empty: nothing."""
        salt = record.cache_salt
        if salt is not None and len(salt.encode()) > _MAX_SALT_BYTES:
            return f"its salt takes more than {_MAX_SALT_BYTES} bytes"
        return ""
