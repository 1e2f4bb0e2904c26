"""Quantising and packing a matrix as each method's files do, written from the public layouts: codes are shifted into
words one by one, so that nothing is shared with the code under test. Every packer also gives the values that its
tensors stand for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True)
class Tensor:
    """As a file holds it."""

    dtype: str
    data: Array
    """Of the dtype's width."""


@dataclass(frozen=True)
class Packed:
    """The tensors of one module, by the last part of their names, and the matrix `[out, in]` that they are."""

    tensors: dict[str, Tensor]
    values: Array


Packer = Callable[[Array], Packed]


def floats(values: Array, dtype: str) -> Tensor:
    """Floats rounded to a type (bfloat16: towards zero)."""
    if dtype == "BF16":
        return Tensor(dtype, (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16))
    return Tensor(dtype, np.ascontiguousarray(values, {"F16": np.float16, "F32": np.float32}[dtype]))


def rounded(values: Array, dtype: str) -> Array:
    """The numbers that remain, in double."""
    data = floats(values, dtype).data
    if dtype == "BF16":
        data = (data.astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float64)


def integers(values: Array) -> Tensor:
    names = {np.dtype(np.int8): "I8", np.dtype(np.int32): "I32", np.dtype(np.int64): "I64"}
    return Tensor(names[values.dtype], np.ascontiguousarray(values))


def e4m3(code: int) -> float:
    """Four bits of exponent, three of mantissa, no infinity."""
    sign, exponent, mantissa = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


E4M3 = np.array([e4m3(code) for code in range(256)])


@dataclass(frozen=True)
class Grid:
    """Codes, scales and zero points of a matrix."""

    codes: Array
    """`[out, in]`, 0 .. 2^bits - 1."""
    scales: Array
    """`[out, groups]`"""
    zeros: Array
    """`[out, groups]`"""
    groups: Array
    """`[in]`"""

    def values(self) -> Array:
        """In double, rounded once."""
        products = self.scales[:, self.groups] * (self.codes - self.zeros[:, self.groups])
        return products.astype(np.float32)


def grid(w: Array, bits: int, group_size: int, *, sym: bool, scale_type: str, groups: Array | None = None) -> Grid:
    """Rounds a matrix group by group. `groups`: of each input; default: neighbours."""
    inputs = w.shape[1]
    size = inputs if group_size == -1 else group_size
    groups = np.arange(inputs) // size if groups is None else groups
    count, top = int(groups.max()) + 1, 2**bits - 1
    scales, zeros = np.empty((len(w), count)), np.empty((len(w), count), np.int64)
    for g in range(count):
        part = w[:, groups == g]
        if sym:
            scales[:, g] = rounded(np.abs(part).max(axis=1) / (2 ** (bits - 1) - 1), scale_type)
            zeros[:, g] = 2 ** (bits - 1)
        else:
            low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
            scales[:, g] = rounded((high - low) / top, scale_type)
            zeros[:, g] = np.clip(np.rint(-low / scales[:, g]), 0, top)
    codes = np.rint(w / scales[:, groups]) + zeros[:, groups]
    return Grid(np.clip(codes, 0, top).astype(np.int64), scales, zeros, groups)


def stream(codes: Array, bits: int) -> Array:
    """`[n, count]` -> `[n, words]` I32: codes after each other, lowest bits first."""
    rows = []
    for row in codes.tolist():
        number = sum(code << (bits * place) for place, code in enumerate(row))
        words = -(-len(row) * bits // 32)
        rows.append([(number >> (32 * word)) & 0xFFFFFFFF for word in range(words)])
    return np.array(rows, np.uint32).view(np.int32)


def awq_words(codes: Array) -> Array:
    """`[n, outputs]` -> `[n, outputs / 8]` I32."""
    words = np.zeros((len(codes), codes.shape[1] // 8), np.uint32)
    for nibble, place in enumerate(AWQ_ORDER):
        words |= codes[:, place::8].astype(np.uint32) << np.uint32(4 * nibble)
    return words.view(np.int32)


def awq(group_size: int = 32, *, zero_point: bool = True, stored_zeros: bool = True, scale_type: str = "F16") -> Packer:
    def pack(w: Array) -> Packed:
        g = grid(w, 4, group_size, sym=not zero_point, scale_type=scale_type)
        tensors = {"qweight": integers(awq_words(g.codes.T)), "scales": floats(g.scales.T, scale_type)}
        if stored_zeros:
            tensors["qzeros"] = integers(awq_words(g.zeros.T))
        return Packed(tensors, g.values())

    return pack


def gptq(
    bits: int = 4, group_size: int = 32, *, sym: bool = True, v2: bool = False, act_order: int | None = None,
    with_g_idx: bool = True, scale_type: str = "F16",
) -> Packer:  # fmt: skip
    """`act_order`: the seed of an order in which inputs were quantised."""

    def pack(w: Array) -> Packed:
        inputs = w.shape[1]
        size = inputs if group_size == -1 else group_size
        groups = np.arange(inputs) // size
        if act_order is not None:
            groups[np.random.default_rng([act_order, inputs]).permutation(inputs)] = np.arange(inputs) // size
        g = grid(w, bits, group_size, sym=sym, scale_type=scale_type, groups=groups)
        stored_zeros = g.zeros if v2 else (g.zeros - 1) % 2**bits
        tensors = {
            "qweight": integers(stream(g.codes, bits).T),
            "qzeros": integers(stream(stored_zeros.T, bits)),
            "scales": floats(g.scales.T, scale_type),
            **({"g_idx": integers(groups.astype(np.int32))} if with_g_idx else {}),
        }
        return Packed(tensors, g.values())

    return pack


def ct_packed(
    bits: int = 4, group_size: int = 32, *, sym: bool = True, act_order: int | None = None,
    scale_type: str = "BF16", packed_zeros: bool = True,
) -> Packer:  # fmt: skip
    def pack(w: Array) -> Packed:
        inputs = w.shape[1]
        groups = np.arange(inputs) // (inputs if group_size == -1 else group_size)
        if act_order is not None:
            groups = np.random.default_rng([act_order, inputs]).permutation(groups)
        g = grid(w, bits, group_size, sym=sym, scale_type=scale_type, groups=groups)
        tensors = {
            "weight_packed": integers(stream(g.codes, bits)),
            "weight_scale": floats(g.scales, scale_type),
            "weight_shape": integers(np.array(w.shape, np.int64)),
            **({"weight_g_idx": integers(groups.astype(np.int32))} if act_order is not None else {}),
        }
        if not sym:
            signed = (g.zeros - 2 ** (bits - 1)).astype(np.int8)
            tensors["weight_zero_point"] = integers(stream(g.zeros.T, bits).T if packed_zeros else signed)
        return Packed(tensors, g.values())

    return pack


def ct_int8(
    *, strategy: str = "channel", group_size: int = -1, sym: bool = True, static: bool = False,
    scale_type: str = "F32",
) -> Packer:  # fmt: skip
    def pack(w: Array) -> Packed:
        g = grid(w, 8, group_size, sym=sym, scale_type=scale_type)
        if strategy == "tensor":
            scale = np.full_like(g.scales, rounded(np.abs(w).max() / 127, scale_type))
            g = Grid(np.rint(w / scale).astype(np.int64) + 128, scale, g.zeros, g.groups)
        scales = g.scales[:1, 0] if strategy == "tensor" else g.scales
        codes = (g.codes - 128).astype(np.int8)
        tensors = {"weight": integers(codes), "weight_scale": floats(scales, scale_type)}
        if not sym:
            tensors["weight_zero_point"] = integers((g.zeros - 128).astype(np.int8))
        if static:
            tensors |= {
                "input_scale": floats(np.array([0.5]), "F32"),
                "input_zero_point": integers(np.array([3], np.int8)),
            }
        return Packed(tensors, g.values())

    return pack


def fp8(
    scale_name: str = "weight_scale", block: tuple[int, int] | None = None, *, per: str = "tensor",
    shape: Sequence[int] | None = None, scale_type: str = "F32", static: str | None = None,
) -> Packer:  # fmt: skip
    """`shape`: of the scales in the file. `static`: name of a scale of activations."""

    def pack(w: Array) -> Packed:
        rows, columns = block or ((1, w.shape[1]) if per == "channel" else w.shape)
        places = (np.arange(w.shape[0]) // rows)[:, None], (np.arange(w.shape[1]) // columns)[None]
        tops = np.zeros((-(-w.shape[0] // rows), -(-w.shape[1] // columns)))
        np.maximum.at(tops, np.broadcast_arrays(*places), np.abs(w))
        scales = rounded(tops / 448, scale_type)
        codes = nearest_e4m3(w / scales[places])
        values = (E4M3[codes] * scales[places]).astype(np.float32)
        tensors = {
            "weight": Tensor("F8_E4M3", codes),
            scale_name: floats(scales if shape is None else scales.reshape(shape), scale_type),
        }
        if static is not None:
            tensors[static] = floats(np.array(0.25), "F32")
        return Packed(tensors, values)

    return pack


def nearest_e4m3(values: Array) -> Array:
    """Codes of the numbers nearest to `values`, `[out, in]` U8."""
    finite = np.where(np.isnan(E4M3), np.inf, E4M3)
    order = np.argsort(finite[:-1], kind="stable")
    sorted_values = finite[order][:254]
    middles = (sorted_values[1:] + sorted_values[:-1]) / 2
    codes: Array = order[np.searchsorted(middles, values)].astype(np.uint8)
    return codes
