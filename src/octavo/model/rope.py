"""Rotary embeddings as model files describe them.

Frequencies are computed in double precision and rounded to float32 once: the models were trained with float32 tables.
"""

import struct
from collections.abc import Sequence

from octavo.errors import UnsupportedModelError
from octavo.model.config import Sizes
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader
from octavo.model.program import RopeSpec
from octavo.model.rope_scaling import (
    MAX_FACTOR,
    Scaling,
    Turning,
    Yarn,
    checked_divisors,
    hf_scaling,
    no_scaling,
    rope_type,
    yarn_magnitude,
    yarn_of,
)

DEFAULT_BASE = 10000.0
_MAX_BASE = 1e12
_ORIGINAL = "original_max_position_embeddings"
_PART = "partial_rotary_factor"


def rope_spec(
    rotary_dim: int, base: float, divisors: Sequence[float] | float = 1.0, magnitude: float = 1.0
) -> RopeSpec:
    """`inv_freq[i] = base ** (-2 i / rotary_dim) / divisors[i]` (Su et al. 2021)."""
    half = rotary_dim // 2
    by = [divisors] * half if isinstance(divisors, int | float) else divisors
    frequencies = tuple(_float32(base ** (-2 * i / rotary_dim) / by[i]) for i in range(half))
    return RopeSpec(rotary_dim, frequencies, magnitude)


def gguf_rope(header: CheckpointHeader, fields: Fields, sizes: Sizes) -> RopeSpec:
    """The rotary embedding that a GGUF file describes: metadata, and the tensors of divisors.

    Raises:
        UnsupportedModelError: for scalings that are not computed, naming the key.
        ModelFileError: for values out of reason.
    """
    rotary_dim = fields.integer("rope.dimension_count", 2, sizes.head_dim, default=sizes.head_dim)
    if rotary_dim % 2:
        raise fields.error("rope.dimension_count", "must be even")
    base = fields.number("rope.freq_base", 1, _MAX_BASE, default=DEFAULT_BASE)
    turning = Turning(rotary_dim, base, sizes.max_positions, header.context or sizes.max_positions)
    scaling = _gguf_scaling(fields, turning)
    tensor, values = _gguf_divisors(header, fields, turning)
    if values is None:
        return rope_spec(rotary_dim, base, scaling.divisors, scaling.magnitude)
    divisors = checked_divisors(Fields(header.path, {tensor: list(values)}), tensor, values, turning)
    both = [a * b for a, b in zip(scaling.divisors, divisors, strict=True)]
    return rope_spec(rotary_dim, base, both, scaling.magnitude)


def _gguf_scaling(fields: Fields, turning: Turning) -> Scaling:
    """`attn_factor` multiplies what a scaling makes of cosines and sines; 0 means "not set" in all keys."""
    fields.accept("rope.scaling.type", "none", "linear", "yarn", "longrope")
    fields.accept("rope.scaling.yarn_log_multiplier", 0.0)
    kind = fields.text("rope.scaling.type", default="linear")
    magnitude = fields.number("rope.scaling.attn_factor", 0, MAX_FACTOR, default=1.0) or 1.0
    # Older files spell the factor of linear scaling `rope.scale_linear`.
    old = fields.number("rope.scale_linear", 0, MAX_FACTOR, default=0.0)
    factor = fields.number("rope.scaling.factor", 0, MAX_FACTOR, default=old) or 1.0
    if kind == "linear":
        return Scaling([factor] * turning.half, magnitude)
    if kind == "yarn":
        return Scaling(_gguf_yarn(fields, turning, factor).divisors(turning), magnitude * yarn_magnitude(factor))
    return Scaling(no_scaling(turning).divisors, magnitude)


def _gguf_yarn(fields: Fields, turning: Turning, factor: float) -> Yarn:
    fields.accept("rope.scaling.yarn_ext_factor", 1.0)
    fields.accept("rope.scaling.yarn_attn_factor", 1.0)
    return Yarn(
        factor=factor,
        original=_gguf_original(fields, turning.max_positions),
        fast=fields.number("rope.scaling.yarn_beta_fast", 1e-6, MAX_FACTOR, default=32.0),
        slow=fields.number("rope.scaling.yarn_beta_slow", 1e-6, MAX_FACTOR, default=1.0),
    )


def _gguf_original(fields: Fields, max_positions: int) -> int:
    return fields.integer("rope.scaling.original_context_length", 2, 1 << 30, default=max_positions)


def _gguf_divisors(header: CheckpointHeader, fields: Fields, turning: Turning) -> tuple[str, tuple[float, ...] | None]:
    """The tensor of divisors that holds for this start, and its values; see `_longrope` of rope_scaling.py."""
    if header.rope_factors is not None:
        return "rope_freqs.weight", header.rope_factors
    if turning.context > _gguf_original(fields, turning.max_positions):
        return "rope_factors_long.weight", header.long_rope_factors
    return "rope_factors_short.weight", header.short_rope_factors


def gguf_max_positions(fields: Fields, max_positions: int) -> int:
    """Positions that a GGUF file's scaling reaches: YaRN's factor may stand beside the original context length."""
    if fields.text("rope.scaling.type", default="none") != "yarn":
        return max_positions
    factor = fields.number("rope.scaling.factor", 0, MAX_FACTOR, default=1.0) or 1.0
    return max(max_positions, int(factor * _gguf_original(fields, max_positions)))


def hf_rope(
    fields: Fields, sizes: Sizes, context: int | None, *, base: float = DEFAULT_BASE, partial: bool = False
) -> RopeSpec:
    """The rotary embedding that config.json describes: `rope_theta` with `rope_scaling`, or `rope_parameters`.

    Args:
        context: longest context of this start; None: all that the model has.
        base: where the config has none.
        partial: the family rotates a part of each head where `partial_rotary_factor` says so.

    Raises as `gguf_rope`.
    """
    return scaled_rope(_hf_object(fields), sizes, context, base=base, partial=partial)


def scaled_rope(
    scaling: Fields, sizes: Sizes, context: int | None, *, base: float = DEFAULT_BASE, partial: bool = False
) -> RopeSpec:
    """One rotary embedding from its own object in config.json. Arguments as of `hf_rope`."""
    if not partial:
        scaling.accept(_PART, 1, 1.0)
    part = scaling.number(_PART, 0, 1, default=1.0)
    rotary_dim = int(part * sizes.head_dim)
    if rotary_dim < 2 or rotary_dim % 2:
        raise UnsupportedModelError(
            f"{scaling.path}: {_PART}={part} of heads of {sizes.head_dim} are {rotary_dim} dimensions: no rotary pairs"
        )
    base = scaling.number("rope_theta", 1, _MAX_BASE, default=base)
    turning = Turning(rotary_dim, base, sizes.max_positions, context or sizes.max_positions)
    scaled = hf_scaling(turning, scaling)
    return rope_spec(rotary_dim, base, scaled.divisors, scaled.magnitude)


def hf_max_positions(fields: Fields, max_positions: int) -> int:
    """Positions that a config's scaling reaches: YaRN's factor may stand beside the original context length."""
    scaling = _hf_object(fields)
    if rope_type(scaling) != "yarn":
        return max_positions
    yarn = yarn_of(scaling, max_positions)
    return max(max_positions, int(yarn.factor * yarn.original))


def _hf_object(fields: Fields) -> Fields:
    """The object of the scaling, with what older configs keep beside it: the base, the part of a head that turns, and
    the original context, which wins there over the object's own."""
    key = "rope_scaling" if fields.has("rope_scaling") else "rope_parameters"
    scaling = fields.nested(key)
    beside = {name: fields.values.get(name) for name in ("rope_theta", _PART) if fields.has(name)}
    original = {_ORIGINAL: fields.values[_ORIGINAL]} if fields.has(_ORIGINAL) else {}
    return Fields(scaling.path, {**beside, **scaling.values, **original})


def _float32(value: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded
