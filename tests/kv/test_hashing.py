"""Block names: what enters them, and that every process computes the same."""

import os
import struct
import subprocess
import sys
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.hashing import BlockHasher, chain_root, salt_key

TOKENS = list(range(100, 140))


def chain(tokens, num_blocks, *, fingerprint="f", block_size=4, salt=b""):
    hashes = []
    BlockHasher(fingerprint, block_size).extend(hashes, tokens, num_blocks, salt)
    return hashes


def test_the_chain_is_sha256_over_parent_and_fixed_width_little_endian_tokens():
    first, second = chain(TOKENS, 2)
    root = chain_root("f", 4)
    assert first == sha256(root + struct.pack("<4I", *TOKENS[:4])).digest()
    assert second == sha256(first + struct.pack("<4I", *TOKENS[4:8])).digest()


def test_the_hash_format_is_pinned():
    """Names of stored blocks outlive the process: a change of format must be a decision, not an accident."""
    assert chain_root("f", 4).hex() == "3b3348fca92154cec86a590b826df0de23eeecec07fefd22edfbb65a229f3c27"
    assert chain(TOKENS, 1)[0].hex() == "f71b7c740fa661140afb4f13a8fbe3453351d4afb25b09cff8f3be4a36206512"
    assert (
        chain(TOKENS, 1, salt=salt_key("s"))[0].hex()
        == "2c0fb820fd045e8e4ef62b76997b97ef32989c2dd58bfd6817171d4597c376c3"
    )


def test_processes_with_other_hash_seeds_agree():
    code = (
        "from octavo.kv.hashing import BlockHasher, salt_key\n"
        "h = []; BlockHasher('f', 4).extend(h, list(range(100, 140)), 10, salt_key('s')); print(h[-1].hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "4711")
    }
    assert seen == {chain(TOKENS, 10, salt=salt_key("s"))[-1].hex()}


def test_a_block_name_depends_on_every_token_before_it():
    for changed in range(12):
        other = list(TOKENS)
        other[changed] += 1
        same = [a == b for a, b in zip(chain(TOKENS, 3), chain(other, 3), strict=True)]
        assert same == [block < changed // 4 for block in range(3)]


def test_fingerprint_and_block_size_are_in_the_root():
    assert chain(TOKENS, 1) != chain(TOKENS, 1, fingerprint="g")
    assert chain_root("f", 4) != chain_root("f", 8)
    assert chain_root("f1", 6) != chain_root("f", 16)


def test_a_cache_salt_enters_the_first_block_and_through_it_all_others():
    plain, salted = chain(TOKENS, 3), chain(TOKENS, 3, salt=salt_key("tenant"))
    assert not set(plain) & set(salted)
    assert salted[1] == sha256(salted[0] + struct.pack("<4I", *TOKENS[4:8])).digest()


def test_no_salt_differs_from_the_empty_salt_and_salts_differ():
    assert len({salt_key(None), salt_key(""), salt_key("a"), salt_key("b"), salt_key("ab")}) == 5


def test_large_token_ids_do_not_collide_with_small_ones():
    assert chain([1, 0, 0, 0], 1) != chain([256, 0, 0, 0], 1)
    assert chain([2**31, 0, 0, 0], 1) != chain([0, 2**31, 0, 0], 1)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=16, max_size=40), st.data())
def test_extending_in_pieces_gives_the_same_chain(tokens, data):
    hasher, hashes = BlockHasher("f", 4), []
    for num_blocks in sorted(data.draw(st.lists(st.integers(0, len(tokens) // 4)))):
        hasher.extend(hashes, tokens, num_blocks)
        assert hashes == chain(tokens, num_blocks)
