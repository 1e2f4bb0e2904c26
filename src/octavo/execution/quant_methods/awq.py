"""AWQ (Lin et al. 2023) as AutoAWQ writes it, layout `gemm`.

Per module: `qweight` I32 [in, out / 8] and `qzeros` I32 [in / group, out / 8], eight outputs of four bits per word in
an order of their own (`AWQ_ORDER`); `scales` [in / group, out]. w = scale * (code - zero).
"""

from functools import partial

import numpy as np

from octavo.execution.quant_methods.matrices import IntegerMatrix, Integers, PackedWeight, PackedWeights
from octavo.execution.quant_methods.settings import (
    SEARCH,
    WEIGHTS_ONLY,
    group_size,
    one_of,
    refuse_others,
    require_weights_only,
    whole_number,
)
from octavo.execution.quant_methods.tensors import FLOATS, Tensors, neighbours, num_groups
from octavo.execution.quant_methods.words import unpack_awq
from octavo.model.fields import Fields

_BITS = 4
_PER_WORD = 8
_MIDDLE = 8
"""The zero point of symmetric codes."""
_COMPUTED = (
    *("quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "format"),
    *("method", "checkpoint_format", "pack_dtype"),
)
_NEUTRAL = (
    *("modules_to_not_convert", "backend", "do_fuse", "modules_to_fuse", "fuse_max_seq_len", "exllama_config"),
    *("meta", "damp_percent", "true_sequential", "act_group_aware", "batch_size", "tokenizer", "dataset", "sym"),
    "cache_block_outputs",
)
"""Which modules are quantised shows in the tensors themselves."""


class Awq:
    """The method `awq`."""

    names = ("awq",)

    def find(self, config: Fields, tensors: Tensors) -> PackedWeights:
        """See `QuantMethod.find`."""
        refuse_others(config, (*_COMPUTED, *_NEUTRAL, *WEIGHTS_ONLY, *SEARCH))
        require_weights_only(config)
        for key, only in {"method": "awq", "checkpoint_format": "gemm", "pack_dtype": "int32"}.items():
            config.accept(key, only)
        whole_number(config, "bits" if config.has("bits") else "w_bit", [_BITS], _BITS)
        one_of(config, "version" if config.has("version") else "format", ["gemm"], "gemm")
        size = group_size(config, "group_size" if config.has("group_size") else "q_group_size", 128)
        zero_point = config.flag("zero_point", default=True)
        found = (_Module(tensors, name, size, zero_point) for name in tensors.modules(".qweight"))
        return PackedWeights({f"{module.name}.weight": module.weight() for module in found})


class _Module:
    """The tensors of one linear."""

    def __init__(self, tensors: Tensors, name: str, size: int, zero_point: bool) -> None:
        self._tensors = tensors
        self.name = name
        self._size = size
        self._zero_point = zero_point
        self._qweight, self._qzeros, self._scales = (f"{name}.{part}" for part in ("qweight", "qzeros", "scales"))

    def weight(self) -> PackedWeight:
        tensors = self._tensors
        inputs, words = tensors.matrix_shape(self._qweight)
        tensors.require(self._qweight, ["I32"], (inputs, words))
        groups = num_groups(inputs, self._size)
        has_zeros = self._zero_point or tensors.has(self._qzeros)
        if has_zeros:
            tensors.require(self._qzeros, ["I32"], (groups, words))
        tensors.require(self._scales, FLOATS, (groups, _PER_WORD * words))
        names = (self._qweight, self._scales, *((self._qzeros,) if has_zeros else ()))
        shape = (_PER_WORD * words, inputs)
        return PackedWeight(shape, names, partial(self._read, shape))

    def _read(self, shape: tuple[int, int]) -> IntegerMatrix:
        words = self._tensors.codes(self._qweight)
        scales = np.ascontiguousarray(self._tensors.floats(self._scales).T)
        return IntegerMatrix(
            shape=shape,
            bits=_BITS,
            codes=lambda rows: unpack_awq(words[:, rows.start // _PER_WORD : rows.stop // _PER_WORD]),
            scales=scales,
            zeros=self._zeros(scales.shape),
            groups=neighbours(shape[1], self._size),
        )

    def _zeros(self, shape: tuple[int, ...]) -> Integers:
        if not self._tensors.has(self._qzeros):
            return np.full(shape, _MIDDLE, np.int32)
        zeros = unpack_awq(self._tensors.codes(self._qzeros)).astype(np.int32)
        if not self._zero_point and (zeros != _MIDDLE).any():
            raise self._tensors.error(self._qzeros, f"holds other zero points than {_MIDDLE} beside zero_point=False")
        return zeros
