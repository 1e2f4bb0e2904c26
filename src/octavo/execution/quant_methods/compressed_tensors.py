"""compressed-tensors (llm-compressor): groups of modules, each with a scheme and a format.

| format | tensors of a module |
|---|---|
| `pack-quantized` | `weight_packed` I32 [out, in * bits / 32], streams of code + 2^(bits - 1); `weight_shape` |
| `int-quantized`, `naive-quantized` | `weight` I8 [out, in], the codes |
| `float-quantized`, `naive-quantized` (early ones: `int-quantized`) | `weight` F8_E4M3 [out, in] |

with `weight_scale` per tensor, output, group of inputs, or block; `weight_zero_point` where codes are not symmetric
(I8, or packed along the outputs as the codes are along the inputs); `weight_g_idx` [in] where groups are not of
neighbours. w = scale * (code - zero point). Schemes of activations say how other engines round them; Octavo does so per
32 inputs beside integer weights, which is finer, and not at all beside float ones.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UnsupportedModelError
from octavo.execution.quant_methods.float8 import E4M3, Block, block_size, float8_weight
from octavo.execution.quant_methods.matrices import Codes, IntegerMatrix, Integers, PackedWeight, PackedWeights
from octavo.execution.quant_methods.settings import ModuleNames, group_size, one_of, refuse_others, whole_number
from octavo.execution.quant_methods.tensors import FLOATS, Shape, Tensors, group_of_input, num_groups
from octavo.execution.quant_methods.words import unpack_words, words_for
from octavo.model.fields import Fields

_PACKED, _INTEGER, _FLOAT, _NAIVE = "pack-quantized", "int-quantized", "float-quantized", "naive-quantized"
_FORMATS = (_PACKED, _INTEGER, _FLOAT, _NAIVE)
_CONFIG = ("quant_method", "config_groups", "format", "ignore", "quantization_status", "sparsity_config")
_CONFIG_NEUTRAL = ("kv_cache_scheme", "global_compression_ratio", "version")
_GROUP = ("targets", "weights", "input_activations", "output_activations", "format")
_WEIGHTS = ("num_bits", "type", "symmetric", "strategy", "group_size", "block_structure", "dynamic", "actorder")
_WEIGHTS_NEUTRAL = ("observer", "observer_kwargs", "zp_dtype", "scale_dtype")
_SPARE = (".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point")
_DENSE = ("format", "targets", "ignore", "global_sparsity", "sparsity_structure", "registry_requires_subclass")
"""Of `sparsity_config`: what it may say of matrices that are stored whole."""
_LINEAR = "Linear"
_REORDERED = ("group", "dynamic", True)
"""Values of `actorder` that leave groups of inputs which are not neighbours; `weight` and `static` do not."""
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True)
class _Scheme:
    """How the weights of some modules are stored."""

    targets: ModuleNames
    format: str
    bits: int
    is_float: bool
    symmetric: bool
    group_size: int
    """-1: groups are no matter of this scheme."""
    block: Block | None
    strategy: str
    reordered: bool
    """Whether groups are not of neighbours, so that there must be a `weight_g_idx`."""


class CompressedTensors:
    """The method `compressed-tensors`."""

    names = ("compressed-tensors", "compressed_tensors")

    def find(self, config: Fields, tensors: Tensors) -> PackedWeights:
        """See `QuantMethod.find`."""
        refuse_others(config, (*_CONFIG, *_CONFIG_NEUTRAL))
        one_of(config, "quantization_status", ["compressed", "frozen"], "compressed")
        refuse_others(config.nested("sparsity_config"), _DENSE)
        one_of(config.nested("sparsity_config"), "format", ["dense"], "dense")
        ignored, schemes = ModuleNames(config, "ignore"), _schemes(config)
        found = {}
        for name in [*tensors.modules(".weight_packed"), *tensors.modules(".weight", ["I8", E4M3])]:
            if name in ignored:
                raise tensors.error(f"{name}.weight", "is of a module that `ignore` lists, and yet quantised")
            found[f"{name}.weight"] = _weight(tensors, name, _scheme_of(name, schemes, config))
        return PackedWeights(found, frozenset(tensors.ending(*_SPARE)))


def _schemes(config: Fields) -> list[_Scheme]:
    groups = config.nested("config_groups")
    return [_scheme(groups.nested(name), config) for name in groups.values]


def _scheme(group: Fields, config: Fields) -> _Scheme:
    refuse_others(group, _GROUP)
    weights = group.nested("weights")
    refuse_others(weights, (*_WEIGHTS, *_WEIGHTS_NEUTRAL))
    weights.accept("dynamic", False)
    kind = one_of(weights, "type", ["int", "float"], "int")
    strategies = ["tensor", "channel", "group", *(["block"] if kind == "float" else [])]
    strategy = one_of(weights, "strategy", strategies, _usual_strategy(weights))
    source = group if group.has("format") else config
    return _Scheme(
        targets=ModuleNames(group, "targets"),
        format=one_of(source, "format", _FORMATS, _NAIVE),
        bits=whole_number(weights, "num_bits", [8] if kind == "float" else [2, 4, 8], 8),
        is_float=kind == "float",
        symmetric=weights.flag("symmetric", default=True),
        group_size=group_size(weights) if strategy == "group" else -1,
        block=_block(weights) if strategy == "block" else None,
        strategy=strategy,
        reordered=strategy == "group" and weights.values.get("actorder") in _REORDERED,
    )


def _usual_strategy(weights: Fields) -> str:
    """What compressed-tensors takes where none is named."""
    if not weights.has("group_size"):
        return "tensor"
    return "channel" if group_size(weights) == -1 else "group"


def _block(weights: Fields) -> Block:
    block = block_size(weights, "block_structure")
    if block is None:
        raise weights.error("strategy", "needs a block_structure")
    return block


def _scheme_of(name: str, schemes: list[_Scheme], config: Fields) -> _Scheme:
    """The scheme that names the module, else the one for all linears."""
    by_name = [scheme for scheme in schemes if name in scheme.targets]
    by_class = [scheme for scheme in schemes if scheme.targets.names(_LINEAR)]
    if not by_name and not by_class:
        raise UnsupportedModelError(
            f"{config.path}: module {name} is quantised, but no group of config_groups has it among its targets"
            f" (by name, by `re:` pattern, or as {_LINEAR})"
        )
    return (by_name or by_class)[0]


def _weight(tensors: Tensors, name: str, scheme: _Scheme) -> PackedWeight:
    if scheme.format == _FLOAT or (scheme.is_float and scheme.format != _PACKED):
        return float8_weight(tensors, f"{name}.weight", f"{name}.weight_scale", _float_block(tensors, name, scheme))
    return _Integers(tensors, name, scheme).weight()


def _float_block(tensors: Tensors, name: str, scheme: _Scheme) -> Block | None:
    return (1, scheme.group_size) if scheme.strategy == "group" else scheme.block


class _Integers:
    """The tensors of one linear of whole numbers."""

    def __init__(self, tensors: Tensors, name: str, scheme: _Scheme) -> None:
        self._tensors = tensors
        self._scheme = scheme
        self._is_packed = scheme.format == _PACKED
        self._codes = f"{name}.weight_packed" if self._is_packed else f"{name}.weight"
        self._bits = scheme.bits if self._is_packed else 8
        """Of the container."""
        parts = ("weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape")
        self._scale, self._zero, self._g_idx, self._shape = (f"{name}.{part}" for part in parts)

    def weight(self) -> PackedWeight:
        tensors, scheme = self._tensors, self._scheme
        shape = self._logical_shape()
        tensors.require(self._scale, FLOATS, *self._scale_shapes(shape))
        names = [self._codes, self._scale]
        if self._is_packed:
            names.append(self._shape)
        if tensors.has(self._zero) or not scheme.symmetric:
            tensors.require(self._zero, ["I8", "I32"], *self._zero_shapes(shape))
            names.append(self._zero)
        if tensors.has(self._g_idx) or scheme.reordered:
            tensors.require(self._g_idx, ["I32"], (shape[1],))
            names.append(self._g_idx)
        return PackedWeight(shape, tuple(names), partial(self._read, shape))

    def _logical_shape(self) -> tuple[int, int]:
        tensors = self._tensors
        outputs, columns = tensors.matrix_shape(self._codes)
        tensors.require(self._codes, ["I32" if self._is_packed else "I8"], (outputs, columns))
        if not self._is_packed:
            return outputs, columns
        tensors.require(self._shape, ["I32", "I64"], (2,))
        rows, inputs = tensors.codes(self._shape).tolist()
        if rows != outputs or inputs < 1 or words_for(inputs, self._bits) != columns:
            raise tensors.error(self._shape, f"says {[rows, inputs]}, which is not what {self._codes} holds")
        return rows, inputs

    def _groups(self, inputs: int) -> int:
        return num_groups(inputs, self._scheme.group_size)

    def _scale_shapes(self, shape: tuple[int, int]) -> list[Shape]:
        outputs, inputs = shape
        shapes: dict[str, list[Shape]] = {
            "tensor": [(), (1,), (1, 1)],
            "channel": [(outputs, 1), (outputs,)],
            "group": [(outputs, self._groups(inputs))],
        }
        return shapes[self._scheme.strategy]

    def _zero_shapes(self, shape: tuple[int, int]) -> list[Shape]:
        if self._tensors.has(self._zero) and self._tensors.dtype(self._zero) == "I8":
            return self._scale_shapes(shape)
        return [(words_for(shape[0], self._bits), self._groups(shape[1]))]

    def _read(self, shape: tuple[int, int]) -> IntegerMatrix:
        spread = (shape[0], self._groups(shape[1]))
        read = _packed if self._is_packed else _signed
        return IntegerMatrix(
            shape=shape,
            bits=self._bits,
            codes=partial(read, self._tensors.codes(self._codes), self._bits, shape[1]),
            scales=_spread(self._tensors.floats(self._scale), spread),
            zeros=self._zeros(spread),
            groups=group_of_input(self._tensors, self._g_idx, shape[1], self._scheme.group_size),
        )

    def _zeros(self, shape: tuple[int, int]) -> Integers:
        middle = 1 << (self._bits - 1)
        if not self._tensors.has(self._zero):
            return np.full(shape, middle, np.int32)
        stored = self._tensors.codes(self._zero)
        if self._tensors.dtype(self._zero) == "I8":
            return _spread(stored.astype(np.int32) + middle, shape)
        return unpack_words(stored.T, self._bits, shape[0]).T.astype(np.int32)


def _spread(values: NDArray[_Number], shape: tuple[int, int]) -> NDArray[_Number]:
    """One value, one per output, or one per output and group -> `[out, groups]`."""
    return np.broadcast_to(values.reshape(values.shape[0] if values.ndim else 1, -1), shape)


def _packed(words: NDArray[Any], bits: int, inputs: int, rows: slice) -> Codes:
    return unpack_words(words[rows], bits, inputs)


def _signed(codes: NDArray[Any], bits: int, inputs: int, rows: slice) -> Codes:
    """Bytes as codes around 128."""
    return np.asarray(codes[rows].view(np.uint8) ^ np.uint8(128))
