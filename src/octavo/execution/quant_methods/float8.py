"""Weights of 8-bit floats (e4m3fn) with one scale per tensor, per output, or per block of outputs and inputs.

Per module: `weight` F8_E4M3 [out, in] and a factor: `weight_scale` (vLLM, AutoFP8, FBGEMM), or `weight_scale_inv`
(DeepSeek, Hugging Face), which multiplies as well, whatever its name says. `activation_scheme` says how other engines
round activations to 8 bits; Octavo keeps them as floats.
"""

from functools import partial

from octavo.execution.quant_methods.matrices import Float8Matrix, PackedWeight, PackedWeights
from octavo.execution.quant_methods.settings import one_of, refuse_others, unsupported
from octavo.execution.quant_methods.tensors import FLOATS, Shape, Tensors
from octavo.model.fields import Fields

E4M3 = "F8_E4M3"
_COMPUTED = ("quant_method", "weight_block_size", "fmt", "activation_scheme", "scale_fmt", "expert_dtype")
_NEUTRAL = ("modules_to_not_convert", "ignored_layers", "kv_cache_scheme", "activation_scale_ub")
"""Which modules are quantised shows in the tensors themselves."""
_SCALES = (".weight_scale", ".weight_scale_inv")
_SPARE = (".input_scale", ".activation_scale", ".output_scale", ".input_scale_ub")

Block = tuple[int, int]
"""Outputs and inputs that share a scale."""


class Fp8:
    """The methods `fp8` and `fbgemm_fp8`."""

    names = ("fp8", "fbgemm_fp8")

    def find(self, config: Fields, tensors: Tensors) -> PackedWeights:
        """See `QuantMethod.find`."""
        refuse_others(config, (*_COMPUTED, *_NEUTRAL))
        one_of(config, "fmt", ["e4m3"], "e4m3")
        one_of(config, "activation_scheme", ["dynamic", "static"], "dynamic")
        one_of(config, "scale_fmt", ["float", "ue8m0"], "float")
        one_of(config, "expert_dtype", ["fp8"], "fp8")
        block = block_size(config, "weight_block_size")
        found = {f"{name}.weight": _weight(tensors, name, block) for name in tensors.modules(".weight", [E4M3])}
        return PackedWeights(found, frozenset(tensors.ending(*_SPARE)))


def block_size(config: Fields, key: str) -> Block | None:
    """The two sizes at `key`, if they are given."""
    if not config.has(key):
        return None
    match config.items(key):
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise unsupported(config, key, "is not two positive sizes, of outputs and of inputs")


def _weight(tensors: Tensors, name: str, block: Block | None) -> PackedWeight:
    scales = [name + ending for ending in _SCALES if tensors.has(name + ending)]
    if len(scales) != 1:
        raise tensors.error(f"{name}.weight", f"needs one tensor of scales, {' or '.join(_SCALES)}; has {scales}")
    return float8_weight(tensors, f"{name}.weight", scales[0], block)


def float8_weight(tensors: Tensors, weight: str, scale: str, block: Block | None) -> PackedWeight:
    """A weight of which each part has one scale: blocks, else each output or all of it, as the scale's shape says."""
    shape = tensors.matrix_shape(weight)
    tensors.require(weight, [E4M3], shape)
    blocks = _allowed(shape, block)
    tensors.require(scale, FLOATS, *blocks)
    return PackedWeight(shape, (weight, scale), partial(_read, tensors, weight, scale, blocks[tensors.shape(scale)]))


def _allowed(shape: tuple[int, int], block: Block | None) -> dict[Shape, Block]:
    """Shapes that scales may have -> what one of them stands for."""
    rows, columns = shape
    if block is not None:
        return {(-(-rows // block[0]), -(-columns // block[1])): block}
    return {(rows, 1): (1, columns), (rows,): (1, columns), (): shape, (1,): shape, (1, 1): shape}


def _read(tensors: Tensors, weight: str, scale: str, block: Block) -> Float8Matrix:
    codes = tensors.codes(weight)
    rows = -(-codes.shape[0] // block[0])
    return Float8Matrix(codes, tensors.floats(scale).reshape(rows, -1), *block)
