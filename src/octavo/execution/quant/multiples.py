"""Formats whose weights are whole multiples of a block's unit: (unit * multiplier of sixteen weights) * number.

ggml's IQ and TQ formats, written out once: `dequantize` multiplies, `to_native` keeps the numbers as codes. Numbers of
the IQ formats are runs of a grid (`grids.py`) with a sign for each weight. Source: the block structures and
dequantisation of ggml (public format facts).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant.grids import grid
from octavo.execution.quant.layout import IQ4_NL_VALUES
from octavo.execution.quant.packing import unpack
from octavo.execution.quant.types import TensorType

Blocks = NDArray[np.void]
Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int8]

HALF = 16
"""Weights under one multiplier."""


@dataclass(frozen=True)
class Multiples:
    """n blocks of 256 weights."""

    unit: NDArray[np.float32]
    """`[n]`"""
    multipliers: Numbers
    """`[n, 16]`"""
    numbers: Numbers
    """`[n, 256]`"""

    @property
    def scales(self) -> NDArray[np.float32]:
        """`[n, 16]`: unit * multiplier, exact."""
        return self.unit[:, None] * self.multipliers.astype(np.float32)

    def values(self) -> NDArray[np.float32]:
        """`[n, 256]`: the weights, each rounded once."""
        numbers = self.numbers.reshape(len(self.unit), -1, HALF).astype(np.float32)
        return (self.scales[..., None] * numbers).reshape(self.numbers.shape)


def read_multiples(tensor_type: TensorType, blocks: Blocks) -> Multiples:
    """The blocks of one of `MULTIPLES_TYPES`, taken apart."""
    return _READERS[tensor_type](blocks)


def _float16(values: NDArray[np.generic], factor: float = 1.0) -> NDArray[np.float32]:
    return values.astype(np.float32) * np.float32(factor)


def _fields(words: NDArray[np.unsignedinteger], bits: int, count: int) -> NDArray[np.int64]:
    """`[n, words]` -> `[n, words * count]`: the lowest `count` fields of `bits` bits of every word."""
    shifts = bits * np.arange(count)
    return (words.astype(np.int64)[..., None] >> shifts & (1 << bits) - 1).reshape(len(words), -1)


def _odd(steps: NDArray[np.int64]) -> Numbers:
    """The multipliers 1, 3, 5 ... of steps 0, 1, 2 ..."""
    return (2 * steps + 1).astype(np.int8)


def _per_32(multipliers: Numbers) -> Numbers:
    return np.repeat(multipliers, 2, axis=1)


def _signs(bits: Bytes) -> Numbers:
    """`[n, bytes]` -> `[n, 8 * bytes]`: 1, and -1 where a bit is set."""
    return 1 - 2 * np.unpackbits(bits, axis=1, bitorder="little").astype(np.int8)


def _even_signs(seven: NDArray[np.int64]) -> Bytes:
    """Seven bits each; an eighth on top makes the number of signs even."""
    parity = np.bitwise_xor.reduce(seven[..., None] >> np.arange(7) & 1, axis=-1)
    bits: Bytes = (seven | parity << 7).astype(np.uint8)
    return bits


def _runs(name: str, codes: NDArray[np.int64]) -> Numbers:
    """`[n, 256]`: the runs of a grid that the codes of each block name."""
    runs: Numbers = grid(name)[codes].reshape(len(codes), 256)
    return runs


def _iq4_xs(b: Blocks) -> Multiples:
    scales = _fields(b["scales_l"], 4, 2) | _fields(b["scales_h"][:, None], 2, 8) << 4
    numbers = IQ4_NL_VALUES[unpack(b["qs"], 4, 16)]
    return Multiples(_float16(b["d"]), _per_32((scales - 32).astype(np.int8)), numbers)


def _iq2_xxs(b: Blocks) -> Multiples:
    codes, words = b["qs"].reshape(len(b), 8, 2, 4)[:, :, 0].reshape(len(b), 32), b["qs"].view("<u4")[:, 1::2]
    numbers = _runs("IQ2_XXS", codes.astype(np.int64)) * _signs(_even_signs(_fields(words, 7, 4)))
    return Multiples(_float16(b["d"], 1 / 8), _per_32(_odd(words.astype(np.int64) >> 28)), numbers)


def _iq2_xs(b: Blocks) -> Multiples:
    words = b["qs"].astype(np.int64)
    numbers = _runs("IQ2_XS", words & 511) * _signs(_even_signs(words >> 9))
    return Multiples(_float16(b["d"], 1 / 8), _odd(_fields(b["scales"], 4, 2)), numbers)


def _iq2_s(b: Blocks) -> Multiples:
    codes = b["qs"].astype(np.int64) | _fields(b["qh"], 2, 4) << 8
    numbers = _runs("IQ2_S", codes) * _signs(b["signs"])
    return Multiples(_float16(b["d"], 1 / 8), _odd(_fields(b["scales"], 4, 2)), numbers)


def _iq3_xxs(b: Blocks) -> Multiples:
    words = b["scales"]
    numbers = _runs("IQ3_XXS", b["qs"].astype(np.int64)) * _signs(_even_signs(_fields(words, 7, 4)))
    return Multiples(_float16(b["d"], 1 / 4), _per_32(_odd(words.astype(np.int64) >> 28)), numbers)


def _iq3_s(b: Blocks) -> Multiples:
    codes = b["qs"].astype(np.int64) | _fields(b["qh"], 1, 8) << 8
    numbers = _runs("IQ3_S", codes) * _signs(b["signs"])
    return Multiples(_float16(b["d"]), _per_32(_odd(_fields(b["scales"], 4, 2))), numbers)


def _shifted(codes: NDArray[np.int64], down: NDArray[np.bool_]) -> Numbers:
    """Runs of IQ1 in eighths: -8, 0 or 8, all shifted by one, up or `down`."""
    runs = np.int8(8) * _runs("IQ1", codes).reshape(len(codes), -1, 8)
    return (runs + np.where(down, np.int8(-1), np.int8(1))[..., None]).reshape(len(codes), 256)


def _iq1_s(b: Blocks) -> Multiples:
    codes = b["qs"].astype(np.int64) | _fields(b["qh"], 3, 4) << 8
    numbers = _shifted(codes, np.repeat(b["qh"] >= 0x8000, 4, axis=1))
    return Multiples(_float16(b["d"], 1 / 8), _per_32(_odd(b["qh"].astype(np.int64) >> 12 & 7)), numbers)


def _iq1_m(b: Blocks) -> Multiples:
    """The float16 of the block lies in the top four bits of its four words of scales."""
    nibbles = _fields(b["qh"], 4, 2)
    numbers = _shifted(b["qs"].astype(np.int64) | (nibbles & 7) << 8, nibbles & 8 != 0)
    words = b["scales"].astype(np.int64)
    d = (words >> 12 << 4 * np.arange(4)).sum(axis=1).astype("<u2").view("<f2")
    return Multiples(_float16(d, 1 / 8), _odd(_fields(b["scales"], 3, 4)), numbers)


def _ternary(b: Blocks, codes: Bytes) -> Multiples:
    ones = np.ones((len(b), 256 // HALF), dtype=np.int8)
    return Multiples(_float16(b["d"]), ones, codes.astype(np.int8) - np.int8(1))


def _ternary_codes(packed: Bytes, digits: int, run: int) -> Bytes:
    """Codes 0 to 2 of bytes that hold ternary digits as a fraction of 256, the first digit the most: each run of bytes
    gives its first digits, then its second, ..."""
    powers = (3 ** np.arange(digits)).astype(np.uint8)[:, None]
    rest = packed.reshape(len(packed), -1, 1, run) * powers
    return (rest.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(packed), -1)


def _tq1_0(b: Blocks) -> Multiples:
    qs = b["qs"]
    parts = ((qs[:, :32], 5, 32), (qs[:, 32:], 5, 16), (b["qh"], 4, 4))
    return _ternary(b, np.concatenate([_ternary_codes(*part) for part in parts], axis=1))


def _tq2_0(b: Blocks) -> Multiples:
    return _ternary(b, unpack(b["qs"], 2, 32))


_READERS: dict[TensorType, Callable[[Blocks], Multiples]] = {
    TensorType.IQ4_XS: _iq4_xs,
    TensorType.IQ2_XXS: _iq2_xxs,
    TensorType.IQ2_XS: _iq2_xs,
    TensorType.IQ2_S: _iq2_s,
    TensorType.IQ3_XXS: _iq3_xxs,
    TensorType.IQ3_S: _iq3_s,
    TensorType.IQ1_S: _iq1_s,
    TensorType.IQ1_M: _iq1_m,
    TensorType.TQ1_0: _tq1_0,
    TensorType.TQ2_0: _tq2_0,
}
MULTIPLES_TYPES = frozenset(_READERS)
