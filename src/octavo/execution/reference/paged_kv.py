"""KV memory of the reference executor: one pool of equal blocks, laid out as `KVLayout` says."""

from collections.abc import Iterable

import numpy as np

from octavo.execution.kv_layers import attention_specs
from octavo.execution.protocols import Float32, Int32
from octavo.execution.reference.kv_numbers import FORMATS, Bytes
from octavo.kv.spec import KVLayout
from octavo.scheduling.plan import BlockCopy

_K, _V = 0, 1


class PagedKV:
    """K and V of all layers, in the layout's number format.

    The pool is `[num_blocks, layers_per_block, 2, bytes]`; the bytes of a block hold `[block_size, kv_heads]` vectors
    of one layer, scales included, and smaller layers leave the rest unused.
    """

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout
        self._format = FORMATS[layout.dtype]
        self.specs = attention_specs(layout)
        """[layer]"""
        self._widths = [[s.bytes_per_token(layout.dtype) // 2 for s in group.layers] for group in layout.groups]
        """[group][place] bytes of K, or of V, of a token."""
        widest = max(width for widths in self._widths for width in widths)
        shape = (layout.num_blocks, layout.layers_per_block, 2, layout.block_size * widest)
        self._pool: Bytes = np.zeros(shape, np.uint8)

    def copy_blocks(self, copies: Iterable[BlockCopy]) -> None:
        """Copies the first tokens of blocks, in order."""
        for copy in copies:
            for place, width in enumerate(self._widths[copy.group]):
                used = copy.num_tokens * width
                self._pool[copy.target, place, :, :used] = self._pool[copy.source, place, :, :used]

    def block_bytes(self, group: int) -> int:
        """See `KVMemory.block_bytes`."""
        return sum(part.size for part in self._block(group, 0))

    def read_block(self, group: int, block_id: int, out: Bytes) -> None:
        """See `KVMemory.read_block`."""
        np.concatenate([part.reshape(-1) for part in self._block(group, block_id)], out=out)

    def write_block(self, group: int, block_id: int, data: Bytes) -> None:
        """See `KVMemory.write_block`."""
        start = 0
        for part in self._block(group, block_id):
            part[...] = data[start : start + part.size].reshape(part.shape)
            start += part.size

    def _block(self, group: int, block_id: int) -> list[Bytes]:
        """What each layer of a group uses of a block, `[2, block_size * width]`: views."""
        size = self._layout.block_size
        return [self._pool[block_id, place, :, : size * width] for place, width in enumerate(self._widths[group])]

    def write(self, layer: int, slots: Int32, k: Float32, v: Float32) -> None:
        """Stores k and v `[tokens, kv_heads * head_dim]` at slots `[tokens]` of a layer."""
        blocks, offsets = np.divmod(slots, self._layout.block_size)
        for which, values in ((_K, k), (_V, v)):
            view = self._view(layer, which)
            view[blocks, offsets] = self._format.encode(values.reshape(len(slots), view.shape[2], -1))

    def read(self, layer: int, blocks: Int32, first: int, stop: int) -> tuple[Float32, Float32]:
        """K and V of positions `first .. stop - 1` of a sequence, each `[stop - first, kv_heads, head_dim]`.

        `blocks` is the sequence's block table in the layer's group.
        """
        size = self._layout.block_size
        start = first // size
        wanted = blocks[start : -(-stop // size)]
        inside = slice(first - start * size, stop - start * size)
        raw = (self._view(layer, which)[wanted] for which in (_K, _V))
        k, v = (self._format.decode(x.reshape(-1, *x.shape[2:])[inside]) for x in raw)
        return k, v

    def _view(self, layer: int, which: int) -> Bytes:
        """`[num_blocks, block_size, kv_heads, vector bytes]` of a layer: a view, for splitting an axis never copies."""
        group, place = self._layout.placement[layer]
        size, width = self._layout.block_size, self._widths[group][place]
        heads = self.specs[layer].num_kv_heads
        return self._pool[:, place, which, : size * width].reshape(-1, size, heads, width // heads)
