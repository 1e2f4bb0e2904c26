"""GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel write it.

Per module: `qweight` I32 [in * bits / 32, out], each column one stream of codes over the inputs; `qzeros` I32
[groups, out * bits / 32], each row one stream over the outputs; `scales` [groups, out]; `g_idx` I32 [in], the group of
each input. w = scale * (code - zero).

Two conventions for zero points: files of the format `gptq` hold zero - 1 (modulo 2^bits, as AutoGPTQ takes it), files
of `gptq_v2` hold zero. With act-order (`desc_act`) inputs were quantised by falling importance, so that the inputs of a
group need not be neighbours in the model; `g_idx` tells.
"""

from dataclasses import dataclass
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
    unsupported,
    whole_number,
)
from octavo.execution.quant_methods.tensors import FLOATS, Tensors, group_of_input, num_groups
from octavo.execution.quant_methods.words import unpack_words, words_for
from octavo.model.fields import Fields

_WORD = 32
_COMPUTED = (
    *("quant_method", "bits", "group_size", "desc_act", "sym", "checkpoint_format", "format", "pack_dtype", "dynamic"),
    *("is_marlin_format", "lm_head", "method"),
)
_NEUTRAL = (
    *("damp_percent", "damp_auto_increment", "true_sequential", "static_groups", "act_group_aware", "hyb_act", "mse"),
    *("model_name_or_path", "model_file_base_name", "meta", "quantizer", "tokenizer", "dataset", "batch_size", "v2"),
    *("block_name_to_quantize", "module_name_preceding_first_block", "modules_in_block_to_quantize", "backend"),
    *("use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config", "max_input_length", "model_seqlen"),
    *("pad_token_id", "cache_block_outputs", "modules_to_not_convert", "inside_layer_modules", "parallel_packing"),
)
"""How codes were found, and for which kernels. Which modules are quantised shows in the tensors themselves."""


@dataclass(frozen=True)
class _Settings:
    bits: int
    group_size: int
    desc_act: bool
    sym: bool
    """Zero points are the middle code, and may be left out."""
    stored_less_one: bool
    """Whether zero points are stored less one."""


class Gptq:
    """The method `gptq`."""

    names = ("gptq",)

    def find(self, config: Fields, tensors: Tensors) -> PackedWeights:
        """See `QuantMethod.find`."""
        settings = _settings(config)
        found = (_Module(tensors, name, settings) for name in tensors.modules(".qweight"))
        return PackedWeights({f"{module.name}.weight": module.weight() for module in found})


def _settings(config: Fields) -> _Settings:
    refuse_others(config, (*_COMPUTED, *_NEUTRAL, *WEIGHTS_ONLY, *SEARCH))
    require_weights_only(config)
    config.accept("is_marlin_format", False)
    config.accept("method", "gptq")
    one_of(config, "pack_dtype", ["int32"], "int32")
    _refuse_exceptions(config.nested("dynamic"))
    key = "checkpoint_format" if config.has("checkpoint_format") else "format"
    return _Settings(
        bits=whole_number(config, "bits", [2, 3, 4, 8]),
        group_size=group_size(config),
        desc_act=config.flag("desc_act", default=False),
        sym=config.flag("sym", default=True),
        stored_less_one=one_of(config, key, ["gptq", "gptq_v2"], "gptq") == "gptq",
    )


def _refuse_exceptions(dynamic: Fields) -> None:
    """GPTQModel's `dynamic`: patterns of modules that are left as they are (`-:`), or quantised otherwise."""
    for pattern in dynamic.values:
        if not pattern.startswith("-:"):
            raise unsupported(dynamic, pattern, "quantises some modules with other settings; only `-:` is supported")


class _Module:
    """The tensors of one linear."""

    def __init__(self, tensors: Tensors, name: str, settings: _Settings) -> None:
        self._tensors = tensors
        self.name = name
        self._settings = settings
        parts = ("qweight", "qzeros", "scales", "g_idx")
        self._qweight, self._qzeros, self._scales, self._g_idx = (f"{name}.{part}" for part in parts)

    def weight(self) -> PackedWeight:
        tensors, settings = self._tensors, self._settings
        words, outputs = tensors.matrix_shape(self._qweight)
        tensors.require(self._qweight, ["I32"], (words, outputs))
        inputs = words * _WORD // settings.bits
        if words * _WORD % settings.bits:
            raise tensors.error(self._qweight, f"holds no whole number of {settings.bits}-bit codes per output")
        groups = num_groups(inputs, settings.group_size)
        tensors.require(self._scales, FLOATS, (groups, outputs))
        names = [self._qweight, self._scales]
        if tensors.has(self._qzeros) or not settings.sym:
            tensors.require(self._qzeros, ["I32"], (groups, words_for(outputs, settings.bits)))
            names.append(self._qzeros)
        if tensors.has(self._g_idx) or (settings.desc_act and groups > 1):
            tensors.require(self._g_idx, ["I32"], (inputs,))
            names.append(self._g_idx)
        return PackedWeight((outputs, inputs), tuple(names), partial(self._read, (outputs, inputs)))

    def _read(self, shape: tuple[int, int]) -> IntegerMatrix:
        words, bits = self._tensors.codes(self._qweight), self._settings.bits
        scales = np.ascontiguousarray(self._tensors.floats(self._scales).T)
        return IntegerMatrix(
            shape=shape,
            bits=bits,
            codes=lambda rows: unpack_words(words[:, rows].T, bits, shape[1]),
            scales=scales,
            zeros=self._zeros(scales.shape),
            groups=group_of_input(self._tensors, self._g_idx, shape[1], self._settings.group_size),
        )

    def _zeros(self, shape: tuple[int, ...]) -> Integers:
        bits = self._settings.bits
        if not self._tensors.has(self._qzeros):
            return np.full(shape, 1 << (bits - 1), np.int32)
        stored = unpack_words(self._tensors.codes(self._qzeros), bits, shape[0]).T.astype(np.int32)
        return (stored + 1) % (1 << bits) if self._settings.stored_less_one else stored
