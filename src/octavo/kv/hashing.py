"""Names of KV blocks: a sha256 chain over tokens, equal in every process that computes equal bits.

    hash[-1] = chain_root(fingerprint, block_size)
    hash[i]  = sha256(hash[i - 1] | tokens of block i | extra keys of block i)

Token ids enter as unsigned 32-bit little-endian numbers. Nothing depends on Python's hash seed, on the platform or on
the order of requests, so hashes can be compared across processes, tiers and machines.
"""

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct, pack

BlockHash = bytes
"""32 bytes."""


def chain_root(fingerprint: str, block_size: int) -> BlockHash:
    """The parent of every first block.

    Args:
        fingerprint: everything that decides the bits of a KV block beside its tokens (weights, linear methods, KV
            dtype and layout, rope settings, numerics version). Two engines share blocks iff theirs are equal.
        block_size: tokens per block.
    """
    return sha256(_framed(b"octavo kv chain 1", fingerprint.encode(), str(block_size).encode())).digest()


def _framed(*parts: bytes) -> bytes:
    """Parts with their lengths in front, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


class BlockHasher:
    """Extends hash chains. One per KV memory."""

    def __init__(self, fingerprint: str, block_size: int, *, root: BlockHash | None = None) -> None:
        """
        Args:
            root: the chain's root where it is known and the fingerprint is not, as to a router.
        """
        self.root = chain_root(fingerprint, block_size) if root is None else root
        self.block_size = block_size
        self._pack = Struct(f"<{block_size}I").pack

    def extend(self, hashes: list[BlockHash], token_ids: Sequence[int], num_blocks: int, salt: bytes = b"") -> None:
        """Appends to `hashes` until it names the first `num_blocks` blocks of `token_ids`.

        Args:
            hashes: the chain so far, from block 0; extended in place.
            token_ids: the request's known tokens, at least `num_blocks * block_size`.
            salt: from `salt_key`; enters the first block and through the chain all others.
        """
        parent = hashes[-1] if hashes else self.root
        size = self.block_size
        for index in range(len(hashes), num_blocks):
            tokens = self._pack(*token_ids[index * size : (index + 1) * size])
            parent = sha256(parent + tokens + (salt if index == 0 else b"")).digest()
            hashes.append(parent)

    @staticmethod
    def pack(token_ids: Sequence[int]) -> bytes:
        """Token ids in the form in which they enter a hash."""
        return pack(f"<{len(token_ids)}I", *token_ids)


def salt_key(cache_salt: str | None) -> bytes:
    """Extra key of a cache salt, tagged so that no other kind of extra key can equal it; empty without a salt."""
    return b"" if cache_salt is None else _framed(b"cache_salt", cache_salt.encode())


def tenant_salt(tenant: str, cache_salt: str | None) -> str:
    """The salt of a tenant's requests where tenants share nothing; no two pairs give the same one."""
    given = [] if cache_salt is None else [cache_salt.encode()]
    return sha256(_framed(b"tenant", tenant.encode(), *given)).hexdigest()
