"""Codes out of 32-bit words: streams of codes of equal width, lowest bits first, and AWQ's order of nibbles."""

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant_methods.matrices import Codes

Words = NDArray[np.int32]

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Nibble i of a word, lowest first, holds output `AWQ_ORDER[i]` of eight (AutoAWQ's gemm layout)."""


def unpack_words(words: Words, bits: int, count: int) -> Codes:
    """`[n, words]` -> the first `count` codes of each row, `[n, count]`.

    A row is one stream of bits: code j occupies bits `j * bits ..` of it. For widths that divide 32 this is the order
    of GPTQ and of compressed-tensors, for 3 bits GPTQ's 32 codes in three words.
    """
    stream = np.ascontiguousarray(words, dtype="<i4").view(np.uint8)
    if 8 % bits:
        single = np.unpackbits(stream, axis=1, bitorder="little")[:, : count * bits].reshape(len(words), count, bits)
        weights = (1 << np.arange(bits)).astype(np.uint8)
        return np.asarray((single * weights).sum(axis=2, dtype=np.uint8))
    per_byte, mask = 8 // bits, np.uint8((1 << bits) - 1)
    codes = np.empty((*stream.shape, per_byte), np.uint8)
    for place in range(per_byte):
        codes[..., place] = (stream >> np.uint8(bits * place)) & mask
    return codes.reshape(len(words), -1)[:, :count]


def words_for(count: int, bits: int) -> int:
    """Words that hold a stream of so many codes."""
    return -(-count * bits // 32)


def unpack_awq(words: Words) -> Codes:
    """`[n, words]` -> `[8 * words, n]`: outputs lie along the words, and come first."""
    codes = np.empty((words.shape[1], 8, words.shape[0]), np.uint8)
    for nibble, place in enumerate(AWQ_ORDER):
        codes[:, place] = ((words >> (4 * nibble)) & 15).T
    return codes.reshape(-1, words.shape[0])
