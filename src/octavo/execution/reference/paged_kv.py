"""KV memory of the reference executor: one pool of equal blocks, laid out as `KVLayout` says."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.execution.protocols import Float32, Int32
from octavo.execution.quant import TensorType, dequantize, quantize
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout
from octavo.scheduling.plan import BlockCopy

Bits = npt.NDArray[np.unsignedinteger[Any]]

_FORMATS: dict[KVDtype, tuple[TensorType, npt.DTypeLike]] = {
    KVDtype.FP32: (TensorType.F32, np.uint32),
    KVDtype.FP16: (TensorType.F16, np.uint16),
    KVDtype.BF16: (TensorType.BF16, np.uint16),
}
"""Number format of the values, and the unsigned integer that holds their bits."""
_K, _V = 0, 1


def attention_spec(layout: KVLayout, group: int) -> AttentionSpec:
    """The spec of a group of attention layers, full or with a window.

    Raises:
        ValueError: the group is of another kind, which this executor cannot run.
    """
    spec = layout.groups[group].spec
    if not isinstance(spec, AttentionSpec) or spec.chunk is not None:
        raise ValueError(f"cache group {group}: the executor runs full and sliding-window attention, not {spec}")
    return spec


class PagedKV:
    """K and V of all layers, in the layout's number format.

    The pool is `[num_blocks, layers_per_block, 2, elements]`; the elements of a block hold
    `[block_size, kv_heads * head_dim]` of one layer, and groups with smaller tokens leave the rest unused.
    """

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout
        self._type, bits = _FORMATS[layout.dtype]
        specs = [attention_spec(layout, group) for group in range(len(layout.groups))]
        self._widths = [spec.num_kv_heads * spec.head_dim for spec in specs]
        elements = layout.block_size * max(self._widths)
        self._pool: Bits = np.zeros((layout.num_blocks, layout.layers_per_block, 2, elements), bits)

    def copy_blocks(self, copies: Iterable[BlockCopy]) -> None:
        """Copies the first tokens of blocks, in order."""
        for copy in copies:
            used = copy.num_tokens * self._widths[copy.group]
            self._pool[copy.target, :, :, :used] = self._pool[copy.source, :, :, :used]

    def write(self, layer: int, slots: Int32, k: Float32, v: Float32) -> None:
        """Stores k and v `[tokens, kv_heads * head_dim]` at slots `[tokens]` of a layer."""
        blocks, offsets = np.divmod(slots, self._layout.block_size)
        for which, values in ((_K, k), (_V, v)):
            self._view(layer, which)[blocks, offsets] = self._encode(values)

    def read(self, layer: int, blocks: Int32, first: int, stop: int) -> tuple[Float32, Float32]:
        """K and V of positions `first .. stop - 1` of a sequence, each `[stop - first, kv_heads, head_dim]`.

        `blocks` is the sequence's block table in the layer's group.
        """
        size = self._layout.block_size
        spec = attention_spec(self._layout, self._layout.placement[layer][0])
        start = first // size
        wanted = blocks[start : -(-stop // size)]
        inside = slice(first - start * size, stop - start * size)
        shape = (stop - first, spec.num_kv_heads, spec.head_dim)
        k, v = (
            self._decode(self._view(layer, which)[wanted].reshape(-1, shape[1] * shape[2])[inside]).reshape(shape)
            for which in (_K, _V)
        )
        return k, v

    def _view(self, layer: int, which: int) -> Bits:
        """`[num_blocks, block_size, kv_heads * head_dim]` of one layer: a view, for splitting an axis never copies."""
        group, place = self._layout.placement[layer]
        size, width = self._layout.block_size, self._widths[group]
        return self._pool[:, place, which, : size * width].reshape(-1, size, width)

    def _encode(self, values: Float32) -> Bits:
        bits: Bits = quantize(self._type, values).view(self._pool.dtype)
        return bits.reshape(values.shape)

    def _decode(self, bits: Bits) -> Float32:
        return dequantize(self._type, np.ascontiguousarray(bits).reshape(-1).view(np.uint8), bits.shape)
